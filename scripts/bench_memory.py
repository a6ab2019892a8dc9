"""Measures the resident memory of a replay buffer filled with random play.

  python scripts/bench_memory.py            # a million steps of each MinAtar game, 100,000 of Atari Pong
  python scripts/bench_memory.py --json FILE

Each buffer is filled in its own process. The script prints the growth of that process's resident memory, and
the size of a full snapshot of replay, which a checkpoint saves.
"""

import argparse
import multiprocessing

from measuring import make_parser, report

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
CASES = {
  **{f"minatar:{game}": (1_000_000, 128, 0.35) for game in GAMES},
  "atari:Pong": (100_000, 8, 0.8),
}
"""Number of steps, number of environments, and the limit in GiB, by environment."""
SEGMENT = 64
MIB = 2**20


def measure(name: str, num_steps: int, num_envs: int) -> dict[str, float]:
  """Fills a buffer of `num_steps` steps and returns its size in memory and in a snapshot."""
  from random_segments import RandomSegments

  from moozi.core.config import ReplayConfig, TargetsConfig
  from moozi.replay.buffer import ReplayBuffer
  from moozi.run.work_log import resident_mib

  warm = RandomSegments(name, {}, num_envs)  # loads modules before the measurement
  warm.next(SEGMENT)
  warm.close()
  play = RandomSegments(name, {}, num_envs)
  targets = TargetsConfig(history_length=4, unroll_steps=5, n_step=10)
  before = resident_mib()
  config = ReplayConfig(capacity=num_steps, min_steps_to_learn=1000)
  replay = ReplayBuffer(config, targets, play.spec, num_envs, seed=0)
  while replay.num_steps < num_steps - num_envs * SEGMENT:
    replay.add(play.next(SEGMENT), 0)
  for _ in range(20):
    replay.sample_many(4, 256)
  grown = resident_mib() - before
  snapshot = replay.snapshot()
  size = sum(array.nbytes for block in snapshot.blocks.values() for array in block.values())
  num_stored = replay.num_steps
  return {
    "steps": num_stored,
    "resident_gib": grown / 1024,
    "bytes_a_step": grown * MIB / num_stored,
    "snapshot_bytes_a_step": size / num_stored,
  }


def measure_all(args: argparse.Namespace) -> dict[str, dict[str, float]]:
  context = multiprocessing.get_context("spawn")
  figures = {}
  for name, (num_steps, num_envs, limit) in CASES.items():
    if args.only not in (None, name):
      continue
    with context.Pool(1) as pool:
      figures[name] = figure = pool.apply(measure, (name, num_steps, num_envs))
    print(
      f"{name:24} {figure['steps']:>9,} steps  {figure['resident_gib']:.3f} GiB of at most {limit} GiB  "
      f"{figure['bytes_a_step']:,.0f} bytes per step, {figure['snapshot_bytes_a_step']:,.0f} in a snapshot",
      flush=True,
    )
  return figures


def main() -> None:
  parser = make_parser(__doc__)
  parser.add_argument("--only", help="one environment by its name in CASES")
  report(parser, measure_all)


if __name__ == "__main__":
  main()
