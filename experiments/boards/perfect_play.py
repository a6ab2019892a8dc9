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
  """Runs `walk` in both seats; returns the results with the checkpoint and the number of simulations.

  The number is 0 if the agent does not search, because of `--prior` or of its algorithm.
  """
  import moozi
  from experiments.boards.exact_walk import agent, walk
  from moozi.envs.suites.open_spiel.rules import Rules
  from moozi.training.algorithms import algorithm_of

  found = moozi.load(arguments.run, arguments.checkpoint, simulations=arguments.simulations)
  config, has_search = found.config, algorithm_of(found.config).has_search
  library, _, game = config.env.name.partition(":")
  if library != "open_spiel":
    raise UserError(f"env.name={config.env.name}: only games of open_spiel are supported")
  if not config.evaluation.noise_free:
    raise UserError(f"{arguments.run}: evaluation.noise_free=false; only agents without noise are supported")
  prior = arguments.prior and has_search
  variables = (found.state.params, found.state.net_state)
  choose = agent(found.evaluator(1 if prior else None), variables, found.spec, prior=prior)
  rules = Rules(game, config.env.kwargs.get("frame_dtype", "auto"))
  return {
    "env": found.spec.name,
    "checkpoint": found.checkpoint.name,
    "simulations": found.num_simulations if has_search and not prior else 0,
    "seats": [dataclasses.asdict(walk(rules, s, choose, found.evaluator().history_length)) for s in (0, 1)],
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
