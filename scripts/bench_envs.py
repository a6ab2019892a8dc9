"""Measures the speed of environments relative to their library, and the size of a stored frame.

    python scripts/bench_envs.py atari [--seconds 10] [--num-envs 8] [--json FILE]

Run it on an idle machine. All cases take turns for several rounds, and the best round of each counts.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from moozi.io.machine import num_cores

ROUNDS = 3
ATARI_GAMES = ("Pong", "Breakout")
STORED_FRAMES = 20_000


def atari(seconds: float, num_envs: int) -> dict[str, Any]:
  """Returns the steps/s (of four frames) of random play in MooZi and in ale-py alone, and a step's bytes."""
  from ale_py import AtariVectorEnv

  from moozi.envs.vector import make_vector

  cores = num_cores()
  random = np.random.default_rng(0)
  out: dict[str, Any] = {"num_envs": num_envs, "threads": cores}
  for game in ATARI_GAMES:
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
        rates[name] = max(rates[name], num_envs * calls_per_second(call, seconds / ROUNDS))
    out[game] = rates
    for name, rate in rates.items():
      share = rate / rates["ale-py, bare"]
      print(f"{game}, {name}: {rate:,.0f} steps/s, {4 * rate:,.0f} frames/s, {share:.2f} of bare", flush=True)
    bare.close()
    for env in envs.values():
      env.close()
  out["memory"] = stored_frames(STORED_FRAMES)
  print(
    f"replay, {STORED_FRAMES:,} frames of 84×84: {out['memory']['array_bytes']:,.0f} bytes per step in "
    f"arrays, {out['memory']['resident_bytes']:,.0f} resident, frame {out['memory']['frame_bytes']:,}"
  )
  return out


def calls_per_second(call: Callable[[], Any], seconds: float) -> float:
  """Returns the calls per second, measured over `seconds`."""
  call()
  start, count = time.perf_counter(), 0
  while time.perf_counter() - start < seconds:
    call()
    count += 1
  return count / (time.perf_counter() - start)


def stored_frames(num_frames: int) -> dict[str, float]:
  """Returns the bytes of a stored step of Breakout: in replay's arrays, and in resident memory."""
  from moozi.core.config import ReplayConfig, TargetsConfig
  from moozi.core.pytree import fields_of, stack
  from moozi.core.records import StepSample, TrajectorySample
  from moozi.envs.vector import make_vector
  from moozi.replay.buffer import ReplayBuffer

  env = make_vector("atari:Breakout", {}, 1, seed=0)
  step = env.reset()
  num_actions = env.spec.num_actions
  zero, one = np.zeros(1, np.int32), np.ones(1, np.int32)
  probs = np.full((1, num_actions), 1 / num_actions, np.float32)
  sample = StepSample(
    **fields_of(step),
    root_value=np.zeros(1, np.float32),
    action_probs=probs,
    action=one,
    acted_version=zero,
    searched_version=zero,
  )
  segment = TrajectorySample(**fields_of(stack([sample] * 100)))
  continuation = TrajectorySample(**{**fields_of(segment), "is_first": np.zeros((100, 1), bool)})
  segment.is_first[1:] = False
  config = ReplayConfig(capacity=num_frames, sampling="uniform", min_steps_to_learn=1)
  before = resident_bytes()
  replay = ReplayBuffer(config, TargetsConfig(history_length=4), env.spec, 1, seed=0)
  replay.add(segment, 0)
  for _ in range(num_frames // 100 - 1):
    replay.add(continuation, 0)
  assert replay.num_steps == num_frames
  env.close()
  return {
    "frame_bytes": int(np.prod(env.spec.frame_shape)),
    "array_bytes": replay.stats()["replay/mib"] * 2**20 / num_frames,
    "resident_bytes": (resident_bytes() - before) / num_frames,
  }


def resident_bytes() -> int:
  """Returns the resident memory of this process."""
  pages = int(Path("/proc/self/statm").read_text().split()[1])
  return pages * resource.getpagesize()


PARTS: dict[str, Callable[[float, int], dict[str, Any]]] = {"atari": atari}


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("part", choices=sorted(PARTS))
  parser.add_argument("--seconds", type=float, default=10.0, help="duration of each measurement")
  parser.add_argument("--num-envs", type=int, default=8)
  parser.add_argument("--json", type=Path, help="also write the figures to this file")
  args = parser.parse_args()
  print(f"# {num_cores()} cores; load average before: {os.getloadavg()[0]:.2f}", flush=True)
  figures = PARTS[args.part](args.seconds, args.num_envs)
  if args.json:
    args.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
  main()
