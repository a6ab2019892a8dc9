"""Measures the returns of uniformly random play under both protocols, in the agents' evaluation episodes.

python -m experiments.minatar_vs_ppo.random_play     # writes results/random_play.json
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.lib.results import conditions_of
from experiments.minatar_vs_ppo.runs import GAMES, HERE, PROTOCOLS
from moozi.evaluation.random_play import random_returns
from moozi.experiments.results import write_json
from moozi.experiments.statistics import estimate
from moozi.io.config import load_config

NUM_EPISODES = 100


def random_play(protocol: str, game: str, num_episodes: int) -> dict[str, Any]:
  """Plays one game at random; returns the mean return with its interval over episodes, and the conditions."""
  config = load_config(f"{PROTOCOLS[protocol].folder}/{game}")
  return {
    "protocol": protocol,
    "game": game,
    "evaluation": conditions_of(config),
    **dataclasses.asdict(estimate([random_returns(config, num_episodes)])),
  }


def main(arguments: Sequence[str] | None = None) -> int:
  """Plays all games and writes the file; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--episodes", type=int, default=NUM_EPISODES)
  parser.add_argument("--results", type=Path, default=HERE / "results")
  options = parser.parse_args(arguments)
  played = []
  for protocol in PROTOCOLS:
    for game in sorted(GAMES):
      played.append(random_play(protocol, game, options.episodes))
      print(f"({protocol}) {game}: {played[-1]['mean']:.2f}", flush=True)
  write_json(options.results / "random_play.json", played)
  return 0


if __name__ == "__main__":
  sys.exit(main())
