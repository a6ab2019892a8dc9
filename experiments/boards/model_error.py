"""Prints how far an agent's learned model is from the rules of its game.

    python -m experiments.boards.model_error zoo:connect_four
    python -m experiments.boards.model_error runs/othello --positions 600 --checkpoint last

`moozi.analysis.model_error` defines the figures. The game is a board game of OpenSpiel, learned in self-play.
"""

import argparse
import json
import sys

from moozi.core.errors import UserError


def main(arguments: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("runs", nargs="+")
  parser.add_argument("--positions", type=int, default=300, help="number of positions; default: 300")
  parser.add_argument("--checkpoint", help="a name, an environment step, or last")
  options = parser.parse_args(arguments)
  if options.positions < 1:
    parser.error(f"--positions={options.positions}: must be at least 1")
  try:
    for run in options.runs:
      print(json.dumps(of_run(run, options.checkpoint, options.positions)), flush=True)
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  return 0


def of_run(run: str, checkpoint: str | None, count: int) -> dict:
  """Returns the run's name, the checkpoint and the model's errors."""
  import moozi
  from moozi.analysis.model_error import model_errors
  from moozi.envs.suites.open_spiel.rules import Rules
  from moozi.run.build import build_model
  from moozi.training.algorithms import algorithm_of

  agent = moozi.load(run, checkpoint)
  config, spec = agent.config, agent.spec
  library, _, game = spec.name.partition(":")
  if library != "open_spiel" or spec.num_players != 2:
    raise UserError(f"{run}: env.name={spec.name}; the game must be one of open_spiel, learned in self-play")
  if not algorithm_of(config).has_model:
    raise UserError(f"{run}: algorithm={config.algorithm} has no model")
  rules = Rules(game, spec.frame_dtype)
  if not (rules.is_deterministic and rules.is_perfect_information):
    raise UserError(f"{run}: env.name={spec.name}; the game must have neither chance nor hidden information")
  variables, length = (agent.state.params, agent.state.net_state), config.targets.history_length
  errors = model_errors(rules, build_model(config, spec), variables, spec, length, count)
  return {"run": str(run), "checkpoint": agent.checkpoint.name, **errors}


if __name__ == "__main__":
  sys.exit(main())
