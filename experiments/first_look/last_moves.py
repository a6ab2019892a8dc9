"""Measures how late the agents of `first_look.yaml` could still have saved the ball that ends an episode.

    python -m experiments.first_look.last_moves    # reads runs/first_look, writes results/RUN/last_moves.json

Evaluation episodes of Breakout differ only in their first moves, so an agent loses the ball in few places. In
copies of the environment before each of the last moves, all sequences of moves up to the loss are tried.
"""

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import moozi
from experiments.lib.command import command, positive_int
from experiments.lib.random_start import random_start
from experiments.lib.results import RUNS, sweep_of
from moozi.io.atomic_write import write_text

HERE = Path(__file__).resolve().parent
MAX_MOVES = 8
"""Number of last moves in which a save is looked for; 8 moves have 6,561 sequences."""


def can_save(env: moozi.Environment, num_moves: int) -> bool:
  """Returns whether some sequence of `num_moves` moves does not end the episode."""
  if num_moves == 0:
    return True
  for action in range(env.action_spec().num_values):
    after = copy.deepcopy(env)
    if not after.step(action).last() and can_save(after, num_moves - 1):
      return True
  return False


def play(agent: moozi.Agent, seed: int) -> dict[str, Any] | None:
  """Plays an episode of at most 1,000 steps, the first of which may be random (`random_start`).

  Returns: the episode's `return`; `moves`, the number of moves before its end of the last state in which the
    ball could be saved, None if not in the last `MAX_MOVES`; and the network's `value` and `policy` there.
    None: the random moves lost the ball, or the episode did not end by a lost ball.
  """
  env = agent.make_env(seed=seed)
  step, total = random_start(env, seed)
  if step.last():
    return None
  states = []
  while not step.last():
    states.append((copy.deepcopy(env), agent.search(step)))
    del states[:-MAX_MOVES]
    step = env.step(agent.act(step))
    total += float(step.reward)
  if step.discount:
    return None
  for moves, (state, search) in enumerate(reversed(states), start=1):
    if can_save(state, moves):
      found = {"moves": moves, "value": search.prior_value, "policy": [float(p) for p in search.prior]}
      return {"return": total, **found}
  return {"return": total, "moves": None, "value": None, "policy": None}


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--episodes", type=positive_int, default=30, help="episodes of each agent")
  options = parser.parse_args(arguments)
  for job in sweep_of(HERE).jobs:
    agent = moozi.load(str(RUNS / HERE.name / job.name))
    played = [play(agent, seed) for seed in range(options.episodes)]
    lost = [episode for episode in played if episode is not None]
    write_text(HERE / "results" / job.name / "last_moves.json", json.dumps(lost) + "\n")
    late = [episode["moves"] for episode in lost if episode["moves"] is not None]
    print(f"{job.name}: {len(lost)} lost balls, savable {sorted(late)} moves before", flush=True)
  return 0


if __name__ == "__main__":
  sys.exit(main())
