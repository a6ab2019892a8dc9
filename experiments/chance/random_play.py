"""Measures the returns of uniformly random play in 2048, under the conditions of the agents' evaluation.

python -m experiments.chance.random_play     # writes results/random_play.json
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.chance.table import HERE
from experiments.lib.results import conditions_of
from moozi.evaluation.random_play import random_returns
from moozi.experiments.results import write_json
from moozi.experiments.statistics import estimate
from moozi.io.config import load_config

NUM_EPISODES = 1000


def main(arguments: Sequence[str] | None = None) -> int:
  """Plays and writes the mean return with its interval over episodes; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--episodes", type=int, default=NUM_EPISODES)
  parser.add_argument("--results", type=Path, default=HERE / "results")
  options = parser.parse_args(arguments)
  config = load_config("pgx/2048")
  played = {
    "env": config.env.name,
    "evaluation": conditions_of(config),
    **dataclasses.asdict(estimate([random_returns(config, options.episodes)])),
  }
  write_json(options.results / "random_play.json", played)
  print(f"{played['mean']:,.0f} [{played['low']:,.0f}, {played['high']:,.0f}]")
  return 0


if __name__ == "__main__":
  sys.exit(main())
