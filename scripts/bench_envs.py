"""Measures the speed of Atari's environments relative to ale-py alone.

    python scripts/bench_envs.py [--seconds 10] [--num-envs 8] [--json FILE]

Run it on an idle machine. All cases take turns for several rounds, and the best round of each counts.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from moozi.io.machine import num_cores

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for `experiments`

ROUNDS = 3
GAMES = ("Pong", "Breakout")


def measure(seconds: float, num_envs: int) -> dict[str, Any]:
  """Returns the steps/s (of four frames) of random play in MooZi and in ale-py alone."""
  from ale_py import AtariVectorEnv

  from moozi.envs.vector import make_vector
  from moozi.training.speed import call_seconds

  cores = num_cores()
  random = np.random.default_rng(0)
  out: dict[str, Any] = {"num_envs": num_envs, "threads": cores}
  for game in GAMES:
    bare = AtariVectorEnv(game.lower(), num_envs, num_threads=cores)
    bare.reset(seed=0)
    num_actions = bare.single_action_space.n
    envs = {
      name: make_vector(f"atari:{game}", kwargs, num_envs, seed=0)
      for name, kwargs in {
        "vectorized": {"num_threads": cores},
        "vectorized, not reseeded": {"num_threads": cores, "reseed": False},
        "one by one": {},
      }.items()
    }
    calls: dict[str, Callable[[], Any]] = {
      "ale-py, bare": lambda: bare.step(random.integers(num_actions, size=num_envs))  # noqa: B023
    }
    for name, env in envs.items():
      env.reset()
      calls[name] = lambda env=env: env.step(random.integers(1, num_actions + 1, num_envs))  # noqa: B023
    rates = dict.fromkeys(calls, 0.0)
    for _ in range(ROUNDS):
      for name, call in calls.items():
        rates[name] = max(rates[name], num_envs / call_seconds(call, seconds / ROUNDS)[0])
    out[game] = rates
    for name, rate in rates.items():
      share = rate / rates["ale-py, bare"]
      print(f"{game}, {name}: {rate:,.0f} steps/s, {4 * rate:,.0f} frames/s, {share:.2f} of bare", flush=True)
    bare.close()
    for env in envs.values():
      env.close()
  return out


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--seconds", type=float, default=10.0, help="duration of each measurement")
  parser.add_argument("--num-envs", type=int, default=8)
  parser.add_argument("--json", type=Path, help="also write the figures to this file")
  args = parser.parse_args()
  print(f"# {num_cores()} cores; load average before: {os.getloadavg()[0]:.2f}", flush=True)
  figures = measure(args.seconds, args.num_envs)
  if args.json:
    args.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
  main()
