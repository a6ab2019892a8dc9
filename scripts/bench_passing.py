"""Measures what replay, Ray and the driver cost per environment step and per sample; part of `make bench`.

    python scripts/bench_passing.py [CONFIG] [key=value …] [--seconds 3] [--json FILE]

The segments are of random play, with the configuration's sizes. The script measures the processor time of
replay's work, which has one thread, and with Ray that of passing the objects of a run between idle actors.
Processor time does not include waiting, so other programs change the figures only by their use of the caches.
`make_scale_page.py` computes the tables of docs/scale.md from these figures for `atari/gpu/pong`.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

from measuring import make_parser, report

FILLED_STEPS = 60_000
NUM_SHARDS = 4


def processor_s(call: Callable[[], Any], seconds: float) -> float:
  """Returns the mean processor seconds of a call."""
  from moozi.training.speed import call_seconds

  return call_seconds(call, seconds, min_calls=3, clock=time.process_time)[0]


def parts_of(targets: Any) -> list[Any]:
  """Returns targets [U, B, …] as the rows of shards that have drawn them at random."""
  import numpy as np

  from moozi.core.pytree import map_fields
  from moozi.replay.shards import DrawnRows

  shard_of_row = np.random.default_rng(0).integers(NUM_SHARDS, size=targets.slot.size)
  flat = map_fields(lambda x: x.reshape(-1, *x.shape[2:]), targets)
  rows = [np.flatnonzero(shard_of_row == shard) for shard in range(NUM_SHARDS)]
  return [DrawnRows(rows=own, targets=map_fields(lambda x, own=own: x[own], flat)) for own in rows]


def bytes_of(record: Any) -> int:
  """Returns the bytes of a record's arrays."""
  from moozi.core.pytree import fields_of

  return sum(x.nbytes for x in fields_of(record).values())


def measure_config(config: Any, seconds: float) -> dict[str, Any]:
  """Returns the figures of a configuration: per step, per sample, and per segment or call of the learner."""
  import numpy as np
  from random_segments import RandomSegments

  from moozi.actors.passing import measure_passing
  from moozi.replay.frame_rows import packed
  from moozi.replay.mixture import make_replay
  from moozi.replay.shards import join

  num_envs, length, learner = config.workers.num_envs, config.workers.segment_length, config.learner
  play = RandomSegments(config.env.name, config.env.kwargs, num_envs)
  replay, num_steps = make_replay(config, play.spec, None), num_envs * length
  # The second segment is added again and again: it continues another one.
  first, segment = (packed(play.next(length), play.spec) for _ in range(2))
  play.close()

  def add(added: Any = segment) -> None:
    replay.add_or_refuse(added, 0, num_envs, num_steps)

  add(first)
  for _ in range(FILLED_STEPS // num_steps):
    add()
  while not replay.can_sample(learner.batch_size):
    add()
  add_s = processor_s(add, seconds)
  targets = replay.sample_many(learner.updates_per_call, learner.batch_size)
  priorities = targets.slot, targets.sequence, np.ones(targets.slot.shape, np.float32)

  def draw() -> None:
    replay.sample_many(learner.updates_per_call, learner.batch_size)
    replay.update_priorities(*priorities)

  draw_s = processor_s(draw, seconds)
  parts, normalizes = parts_of(targets), config.replay.normalize_importance
  join_s = processor_s(lambda: join(parts, learner.batch_size, normalizes), seconds)
  passed = measure_passing(config, segment, targets, priorities, seconds)
  return {
    "segment_steps": num_steps,
    "call_samples": targets.slot.size,
    "add_s_per_step": add_s / num_steps,
    "draw_s_per_sample": draw_s / targets.slot.size,
    "join_s_per_sample": join_s / targets.slot.size,
    "step_bytes": bytes_of(segment) / num_steps,
    "sample_bytes": bytes_of(targets) / targets.slot.size,
    "pass_segment": passed.segment._asdict(),
    "pass_batch": passed.batch._asdict(),
  }


def measure(args: argparse.Namespace) -> dict[str, Any]:
  """Measures and prints all figures, and returns them."""
  from moozi.io.config import load_config
  from moozi.io.machine import describe_machine

  load = os.getloadavg()[0]
  figures = measure_config(load_config(args.config, args.overrides), args.seconds)
  for text, name in (
    ("add a step", "add_s_per_step"),
    ("draw a sample and set its priority", "draw_s_per_sample"),
  ):
    print(f"{text:<40} {1e6 * figures[name]:>9.2f} µs")
  print(f"{f'join a sample of {NUM_SHARDS} shards':<40} {1e6 * figures['join_s_per_sample']:>9.2f} µs")
  for text, name in (("pass a segment", "pass_segment"), ("pass the samples of a call", "pass_batch")):
    driver_s, total_s = figures[name].values()
    print(f"{text:<40} {1e3 * driver_s:>9.2f} ms in the driver, {1e3 * total_s:.2f} ms in all processes")
  print(f"a step {figures['step_bytes']:,.0f} bytes, a sample {figures['sample_bytes']:,.0f} bytes")
  conditions = {"config": args.config, "overrides": args.overrides, "load_average": load}
  return {**conditions, **describe_machine(), **figures}


def main() -> None:
  parser = make_parser(__doc__, "config/minatar/breakout.yaml")
  parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement (%(default)g)")
  report(parser, measure)


if __name__ == "__main__":
  main()
