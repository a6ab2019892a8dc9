"""Prints how far an agent's learned model is from the rules of its game.

    python -m experiments.boards.model_error zoo:connect_four
    python -m experiments.boards.model_error runs/othello --positions 600 --checkpoint last

`moozi.analysis.model_error` defines the figures. The game is a board game of OpenSpiel, learned in self-play.
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
  parser.add_argument("--positions", type=positive_int, default=300, help="number of positions; default: 300")
  parser.add_argument("--checkpoint", help="a name, an environment step, or last")
  options = parser.parse_args(arguments)
  for run in options.runs:
    print(json.dumps(of_run(run, options.checkpoint, options.positions)), flush=True)
  return 0


def of_run(run: str, checkpoint: str | None, count: int) -> dict:
  """Returns the run's name, the checkpoint and the model's errors."""
  from experiments.boards.loading import load_game
  from moozi.analysis.model_error import model_errors
  from moozi.run.build import build_model

  agent, rules, variables = load_game(run, checkpoint)
  config, spec = agent.config, agent.spec
  if not config.has_model:
    raise UserError(f"{run}: algorithm={config.algorithm} has no model")
  if not (rules.is_deterministic and rules.is_perfect_information):
    raise UserError(f"{run}: env.name={spec.name}; the game must have neither chance nor hidden information")
  model, length = build_model(config, spec), config.targets.history_length
  errors = model_errors(rules, model, variables, spec, length, count)
  return {"run": str(run), "checkpoint": agent.checkpoint.name, **errors}


if __name__ == "__main__":
  sys.exit(main())
