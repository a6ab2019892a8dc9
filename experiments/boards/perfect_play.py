"""Plays a run's agent against every legal reply at every move, in both seats, and counts the results.

    python -m experiments.boards.perfect_play runs/tic_tac_toe
    python -m experiments.boards.perfect_play runs/tic_tac_toe --prior     # the policy without search
    python -m experiments.boards.perfect_play runs/tic_tac_toe --simulations 100 --json

Exits with status 1 if the agent can be beaten.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from moozi.core.errors import UserError


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("run", type=Path)
  parser.add_argument("--checkpoint", help="a name, a path, an environment step, or last")
  parser.add_argument("--simulations", type=int, help="per search (default: the run's setting)")
  parser.add_argument("--prior", action="store_true", help="use the network's policy without search")
  parser.add_argument("--json", action="store_true")
  arguments = parser.parse_args()
  try:
    result = evaluate(arguments)
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  print(json.dumps(result) if arguments.json else describe(result))
  return int(any(seat["losses"] for seat in result["seats"]))


def evaluate(arguments: argparse.Namespace) -> dict:
  """Runs `walk` in both seats; returns the results with the checkpoint and the number of simulations."""
  from experiments.boards.exact_walk import agent, walk
  from moozi.envs.suites.open_spiel.rules import Rules
  from moozi.evaluation.evaluator import evaluation_planner
  from moozi.io.checkpoints import expected_of, find_checkpoint, load_checkpoint
  from moozi.io.run_directory import RunDirectory
  from moozi.run import build

  run = RunDirectory.open(arguments.run)
  config = run.load_config()
  library, _, game = config.env.name.partition(":")
  if library != "open_spiel":
    raise UserError(f"env.name={config.env.name}: only games of open_spiel are supported")
  spec = build.env_spec(config)
  found = find_checkpoint(run.checkpoints_path, arguments.checkpoint)
  state = load_checkpoint(found.path, build.training_state_template(config, spec), expected_of(config, spec))
  choose = agent(
    config,
    spec,
    state.params,
    state.net_state,
    num_simulations=arguments.simulations,
    prior=arguments.prior,
  )
  rules = Rules(game, config.env.kwargs.get("frame_dtype", "auto"))
  return {
    "env": spec.name,
    "checkpoint": found.name,
    "simulations": 0
    if arguments.prior
    else evaluation_planner(config, arguments.simulations).num_simulations,
    "seats": [dataclasses.asdict(walk(rules, s, choose, config.targets.history_length)) for s in (0, 1)],
  }


def describe(result: dict) -> str:
  """Returns the result as text."""
  how = f"{result['simulations']} simulations" if result["simulations"] else "the policy without search"
  lines = [f"{result['env']}, {result['checkpoint']}, {how}, against every legal reply at every move:"]
  for seat in result["seats"]:
    lines.append(
      f"seat {seat['seat']}: {seat['losses']} losses, {seat['draws']} draws, {seat['wins']} wins "
      f"over all distinct final positions; {seat['positions']} positions with the agent to move"
    )
    lines += [f"  lost: {line}" for line in seat["lost"]]
  losses = sum(seat["losses"] for seat in result["seats"])
  return "\n".join(
    [*lines, "the agent never loses" if losses == 0 else f"the agent loses in {losses} final positions"]
  )


if __name__ == "__main__":
  sys.exit(main())
