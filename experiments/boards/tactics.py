"""Prints how often agents take immediate wins and block immediate threats, with search and without.

    python -m experiments.boards.tactics runs/connect_four runs/tic_tac_toe
    python -m experiments.boards.tactics runs/connect_four --positions 500 --checkpoint 4000000 --json

The positions are from random play; `moozi.analysis.tactics` defines them. Each line also has the share of a
random player and, if the run has a model, how well it predicts the rewards of a winning move and of another
move.
"""

import argparse
import json
import sys

from experiments.lib.command import command, positive_int
from moozi.core.errors import UserError


@command
def main(arguments: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("runs", nargs="+")
  parser.add_argument("--positions", type=positive_int, default=200, help="of each kind; default: 200")
  parser.add_argument("--simulations", type=int, help="simulations per search; default: planners.test")
  parser.add_argument("--checkpoint", help="a name, an environment step, or last")
  parser.add_argument("--json", action="store_true")
  options = parser.parse_args(arguments)
  results = [of_run(run, options.checkpoint, options.positions, options.simulations) for run in options.runs]
  for result in results:
    print(json.dumps(result) if options.json else _text(result))
  return 0


def of_run(run: str, checkpoint: str | None, count: int, simulations: int | None = None) -> dict:
  """Returns the number of positions, the shares of right moves by player and kind, and the model's errors."""
  from experiments.boards.loading import load_game
  from moozi.analysis.exploitability import agent_decides
  from moozi.analysis.tactics import chance_shares, find_positions, reward_errors, shares
  from moozi.run.build import build_model

  agent, rules, variables = load_game(run, checkpoint, simulations)
  config, spec, evaluator = agent.config, agent.spec, agent.evaluator()
  positions = find_positions(rules, count)
  if not positions:
    raise UserError(f"{run}: random play of {spec.name} reaches no immediate win and no block")
  out = {
    "run": str(run),
    "env": spec.name,
    "checkpoint": agent.checkpoint.name,
    "positions": {kind: sum(x.kind == kind for x in positions) for kind in ("win", "block")},
    "random": chance_shares(positions),
  }
  for name, kind in (("prior", "prior"), ("search", "played")):
    decide = agent_decides(evaluator, variables, spec, config.evaluation.num_envs, kind, rules.max_moves)
    out[name] = shares(positions, decide)
  if config.has_model:
    model, length = build_model(config, spec), config.targets.history_length
    out |= reward_errors(positions, model, variables, spec, length)
  return out


def _text(result: dict) -> str:
  parts = [
    f"{kind}s {', '.join(f'{name} {result[name][kind]:.3f}' for name in ('search', 'prior', 'random'))}"
    f" of {count}"
    for kind, count in result["positions"].items()
    if count
  ]
  if "reward_win" in result:
    parts.append(
      f"reward of a win {result['reward_win']:.3f} (loss {result['reward_loss_win']:.3f}), "
      f"of another move {result['reward_other']:.3f} (loss {result['reward_loss_other']:.3f})"
    )
  return f"{result['run']} ({result['env']}): {'; '.join(parts)}"


if __name__ == "__main__":
  sys.exit(main())
