"""Measures the speed of Atari's environments relative to ale-py alone.

    python scripts/bench_envs.py [--seconds 10] [--num-envs 8] [--json FILE]

Run it on an idle machine. All cases take turns for three rounds, and ratios compare rates of one round.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from measuring import Rates, make_parser, print_rates, rates_in_turn, report

from moozi.io.machine import num_cores

ROUNDS = 3
GAMES = ("Pong", "Breakout")


def measure(seconds: float, num_envs: int) -> dict[str, Any]:
  """Returns the steps/s (of four frames) of random play in MooZi and in ale-py alone, in each round."""
  from ale_py import AtariVectorEnv

  from moozi.envs.vector import make_vector

  cores, random = num_cores(), np.random.default_rng(0)
  out: dict[str, Any] = {"num_envs": num_envs, "threads": cores}

  def play(env: Any, first: int) -> Callable[[], int]:
    def call() -> int:
      env.step(random.integers(first, first + num_actions, num_envs))
      return num_envs

    return call

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
    for env in envs.values():
      env.reset()
    calls = {"ale-py, bare": play(bare, 0)} | {name: play(env, 1) for name, env in envs.items()}
    rates: Rates = rates_in_turn(calls, ROUNDS, seconds / ROUNDS)
    print_rates(rates, "steps/s", f"{game}: ")
    out[game] = rates
    for env in (bare, *envs.values()):
      env.close()
  return out


def main() -> None:
  parser = make_parser(__doc__)
  parser.add_argument("--seconds", type=float, default=10.0, help="duration of each measurement")
  parser.add_argument("--num-envs", type=int, default=8)
  report(parser, lambda args: measure(args.seconds, args.num_envs))


if __name__ == "__main__":
  main()
