"""Plays agents against every legal reply at every move, in both seats, and counts the results.

    python -m experiments.boards.perfect_play runs/tic_tac_toe
    python -m experiments.boards.perfect_play runs/tic_tac_toe --prior     # the policy without search
    python -m experiments.boards.perfect_play runs/*tic_tac_toe* --simulations 100 --json

Exits with status 1 if an agent can be beaten.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from experiments.lib.command import command
from moozi.core.errors import UserError


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("runs", nargs="+", metavar="RUN")
  parser.add_argument("--checkpoint", help="a name, a path, an environment step, or last")
  parser.add_argument("--simulations", type=int, help="per search (default: the run's setting)")
  parser.add_argument("--prior", action="store_true", help="use the network's policy without search")
  parser.add_argument("--json", action="store_true")
  options = parser.parse_args(arguments)
  can_lose = False
  for run in options.runs:
    result = evaluate(run, options)
    print(json.dumps(result) if options.json else describe(result), flush=True)
    can_lose |= any(seat["losses"] for seat in result["seats"])
  return int(can_lose)


def evaluate(run: str, options: argparse.Namespace) -> dict[str, Any]:
  """Runs `walk` in both seats; returns the results with the checkpoint and the number of simulations.

  The number is 0 if the agent does not search, because of `--prior` or of its algorithm.
  """
  from experiments.boards.exact_walk import walk
  from experiments.boards.lines import PolicyKind, agent_decides
  from experiments.boards.loading import load_game

  agent, rules, variables = load_game(run, options.checkpoint, options.simulations)
  if not agent.config.evaluation.noise_free:
    raise UserError(f"{run}: evaluation.noise_free=false; only agents without noise are supported")
  searches = agent.config.searches
  prior = options.prior and searches
  evaluator = agent.evaluator(1) if prior else agent.evaluator()
  kind: PolicyKind = "prior" if prior else "played"
  decide = agent_decides(evaluator, variables, agent.spec, 64, kind, rules.max_moves)
  config = agent.config
  length = (config.ppo if config.algorithm == "ppo" else config.targets).history_length
  seats = [walk(rules, seat, decide, length) for seat in (0, 1)]
  return {
    "run": run,
    "env": agent.spec.name,
    "checkpoint": agent.checkpoint.name,
    "simulations": agent.num_simulations if searches and not prior else 0,
    "seats": [dataclasses.asdict(seat) for seat in seats],
  }


def describe(result: dict[str, Any]) -> str:
  """Returns the result as text."""
  how = f"{result['simulations']} simulations" if result["simulations"] else "the policy without search"
  lines = [f"{result['run']}, {result['checkpoint']}, {how}, against every legal reply at every move:"]
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
