"""Measures how long before a hit the agents of `caution.yaml` leave the column of an enemy's bullet.

    python -m experiments.caution.measure [--episodes 50]    # results/RUN/dodges.json for each run

Every agent plays the game without sticky actions, so that each move is its own, and the game with them. As in
evaluation, an episode begins with up to eight random actions; without them all episodes are equal. An enemy's
bullet moves down one row per frame, so a bullet d rows above the cannon hits it after d frames, unless the
cannon leaves the column.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

import moozi
from experiments.lib.command import command
from experiments.lib.random_start import random_start
from experiments.lib.results import RUNS, sweep_of
from moozi.io.atomic_write import write_text

HERE = Path(__file__).parent
CANNON, BULLET = 0, 5
"""Channels of MinAtar's frames of Space Invaders."""
PROBABILITIES = (0.0, 0.1)


def distance_of_bullet(frame: Float[np.ndarray, "10 10 C"]) -> int | None:
  """Returns the number of frames until a bullet in the cannon's column hits it; None without a bullet."""
  bottom = frame.shape[0] - 1
  rows = np.flatnonzero(frame[:bottom, column_of(frame), BULLET])
  return bottom - int(rows[-1]) if rows.size else None


def column_of(frame: Float[np.ndarray, "10 10 C"]) -> int:
  """Returns the column of the cannon."""
  return int(np.argmax(frame[-1, :, CANNON]))


def play(agent: moozi.Agent, sticky: float, seed: int) -> dict[str, Any]:
  """Plays an episode of at most 1,000 steps, the first of which may be random (`random_start`).

  Returns: its `return`; `dodges`, the distance of the bullet at each move of the agent that leaves
    its column; and `threats`, the distance in each frame with a bullet in the cannon's column.
  """
  env = moozi.make_env("minatar:space_invaders", seed=seed, sticky_action_prob=sticky, max_episode_steps=1000)
  step, total = random_start(env, seed)
  dodges, threats = list[int](), list[int]()
  while not step.last():
    before = step.observation.frame
    step = env.step(agent.act(step))
    total += float(step.reward)
    distance = distance_of_bullet(before)
    if distance is not None:
      threats.append(distance)
      if not step.last() and column_of(step.observation.frame) != column_of(before):
        dodges.append(distance)
  return {"return": total, "dodges": dodges, "threats": threats}


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--episodes", type=int, default=50, help="episodes of each agent in each game")
  options = parser.parse_args(arguments)
  for job in sweep_of(HERE).jobs:
    out = HERE / "results" / job.name / "dodges.json"
    if out.exists() or not out.parent.exists():
      continue
    agent = moozi.load(str(RUNS / HERE.name / job.name))
    found = {
      str(sticky): [play(agent, sticky, seed) for seed in range(options.episodes)] for sticky in PROBABILITIES
    }
    write_text(out, json.dumps(found) + "\n")
    for sticky, episodes in found.items():
      dodges = [distance for episode in episodes for distance in episode["dodges"]]
      mean = np.mean([episode["return"] for episode in episodes])
      print(
        f"{job.name}, sticky {sticky}: return {mean:.1f}, distance at a move {np.mean(dodges):.2f}",
        flush=True,
      )
  return 0


if __name__ == "__main__":
  sys.exit(main())
