"""Measures the returns of uniformly random play in the table's environments, from the agents' starts.

python -m experiments.minatar_vs_ppo.random_play     # writes results/random_play.json; takes a minute
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.lib.results import conditions_of, write_json
from moozi.evaluation.random_play import random_returns
from moozi.experiments.statistics import estimate
from moozi.io.config import load_config

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parents[1] / "config" / "minatar"
ENVS = tuple((game, 0.0) for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders"))
STICKY_ENVS = (("breakout", 0.1),)
NUM_EPISODES = 100


def random_play(game: str, sticky: float, num_episodes: int) -> dict[str, Any]:
  """Plays one environment at random; returns the mean return with its interval and conditions."""
  config = load_config(CONFIG / f"{game}.yaml", [f"env.kwargs.sticky_action_prob={sticky}"])
  return {
    "game": game,
    "sticky_action_prob": sticky,
    "evaluation": conditions_of(config),
    **dataclasses.asdict(estimate([random_returns(config, num_episodes)])),
  }


def main(arguments: Sequence[str] | None = None) -> int:
  """Plays in all environments and writes the file; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--episodes", type=int, default=NUM_EPISODES)
  parser.add_argument("--results", type=Path, default=HERE / "results")
  options = parser.parse_args(arguments)
  played = []
  for game, sticky in ENVS + STICKY_ENVS:
    played.append(random_play(game, sticky, options.episodes))
    print(f"{game}, sticky actions {sticky:g}: {played[-1]['mean']:.2f}", flush=True)
  write_json(options.results / "random_play.json", played)
  return 0


if __name__ == "__main__":
  sys.exit(main())
