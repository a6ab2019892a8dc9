"""Measures the control plane: what a run passes on when acting and learning take no processor time.

    python scripts/bench_scale.py [CONFIG] [key=value …] [--workers 1 2 4 8 16 32] [--seconds 10]

Runs are those of `moozi train` with Ray: driver, recorder, replay and actors. Only the actors that compute
are replaced (`canned_actors`): a training worker waits `--act` seconds and returns a prepared segment of
random play, and the parameter server waits `--learn` seconds for each call. For each number of workers, the
script prints environment steps, segments and samples per second, the rate relative to that of the first row,
and the cores that each kind of process uses. A part is saturated if it is busy at least 90% of the time: a
process that makes one call at a time, or all cores of the machine together.
"""

import argparse
import collections
import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from measuring import make_parser, report

from moozi.core.actor_report import REPLAY, SERVER, WORKER
from moozi.io.machine import num_cores, processor_seconds

SETTINGS = (
  *("runtime=ray", "ray.num_cpus=128", "max_env_steps=1_000_000_000", "workers.max_random_starts=0"),
  *("evaluation.period_env_steps=1_000_000_000", "checkpoint.period_s=1e6", "checkpoint.first_s=null"),
  "checkpoint.milestones_env_steps=null",
  *("logging.progress=none", "logging.period_s=1", "logging.tensorboard=false"),
  *("workers.num_envs=64", "workers.segment_length=16", "learner.samples_per_step=0.25"),
)
"""Segments are of 1,024 steps, and one sample is drawn for four steps, unless key=value says otherwise."""
WARM_UP_S = 3.0
SATURATED = 0.9
SINGLE = {REPLAY, SERVER}
"""Actors of which a run has one, which makes one call at a time."""
PARTS = {
  "ray::CannedWorker": "workers",
  "ray::ReplayActor": "replay",
  "ray::CannedServer": "server",
}
"""Parts by the start of a process's command; this process is the driver, and all others are Ray's."""


@dataclasses.dataclass
class Counts:
  """What arrived at the driver: environment steps and segments in replay, and samples."""

  env_steps: int = 0
  segments: int = 0
  samples: int = 0


def first_limit(row: Mapping[str, Any], cores: int) -> str:
  """Returns the part of a row that is saturated first: the busiest of those above 90%, or `the wait`."""
  shares = {f"{name} (busy)": row["busy"][name] for name in row["busy"]}
  shares["driver"] = row["cores"].get("driver", 0.0)
  shares[f"all {cores} cores"] = sum(row["cores"].values()) / cores
  name = max(shares, key=shares.__getitem__)
  return name if shares[name] >= SATURATED else "the wait"


def part_of(command: str) -> str:
  """Returns the part of a process from its command line."""
  name = command.partition(" ")[0].rpartition("/")[2]
  return next((part for start, part in PARTS.items() if name.startswith(start)), "Ray")


def seconds_by_part() -> dict[str, float]:
  """Returns the processor seconds of this process and its descendants so far, by part."""
  out = collections.Counter[str]()
  for number, (command, seconds) in processor_seconds().items():
    out["driver" if number == os.getpid() else part_of(command)] += seconds
  return dict(out)


def measure_one(config: Any, args: argparse.Namespace) -> dict[str, Any]:
  """Runs with a number of workers, and returns the figures of `--seconds` after the warm-up."""
  from canned_actors import closed_segment, replaced
  from random_segments import RandomSegments

  from moozi.run import events

  workers = config.workers
  play = RandomSegments(config.env.name, config.env.kwargs, workers.num_envs)
  segment, spec = closed_segment(play.next(workers.segment_length)), play.spec
  play.close()
  counts, acting = Counts(), set[str]()
  busy, elapsed = collections.Counter[str](), collections.Counter[str]()
  begin_s: float | None = None
  ready_s = None
  with replaced(segment, args.act, args.learn, args.parameters), run_of(config, spec) as run:
    for event in run:
      now = time.monotonic()
      match event:
        case events.Acted():
          counts.segments += 1
          counts.env_steps = event.env_steps
        case events.Updated():
          counts.samples += event.num_samples
        case events.ActorReports() if begin_s is None:
          acting |= {name for name, x in event.reports.items() if name.startswith(WORKER) and x.busy_s}
        case events.ActorReports():
          for name in SINGLE & event.reports.keys():
            busy[name] += event.reports[name].busy_s
            elapsed[name] += event.reports[name].elapsed_s
      if ready_s is None and counts.samples and len(acting) == workers.num_workers:
        ready_s = now
      if begin_s is None and ready_s is not None and now >= ready_s + WARM_UP_S:
        begin_s, before, used_before = now, dataclasses.replace(counts), seconds_by_part()
      if begin_s is not None and now >= begin_s + args.seconds:
        break
    used = seconds_by_part()
  assert begin_s is not None, "a run does not end before its window"
  seconds = now - begin_s
  return {
    "workers": workers.num_workers,
    "env_steps_per_s": (counts.env_steps - before.env_steps) / seconds,
    "segments_per_s": (counts.segments - before.segments) / seconds,
    "samples_per_s": (counts.samples - before.samples) / seconds,
    "cores": {part: (used[part] - used_before.get(part, 0.0)) / seconds for part in sorted(used)},
    "busy": {name: busy[name] / elapsed[name] for name in sorted(busy)},
  }


@contextlib.contextmanager
def run_of(config: Any, spec: Any) -> Iterator[Iterator[Any]]:
  """A context with the recorded events of a new run, which ends with the block, without a last checkpoint."""
  from moozi.io.run_directory import RunDirectory
  from moozi.training.start import Stop, train_events

  with tempfile.TemporaryDirectory() as folder:
    config = config.model_copy(update={"run": config.run.model_copy(update={"dir": folder, "name": "run"})})
    directory = RunDirectory.create(config)
    with (
      directory.claim(),
      directory.held() as held,
      contextlib.closing(train_events(config, spec, held, None, Stop())) as events,
    ):
      yield events


def measure(args: argparse.Namespace) -> dict[str, Any]:
  from moozi.io.config import load_config

  cores, rows = num_cores(), []
  print(f"{'workers':>7} {'env steps/s':>12} {'of linear':>9} {'segments/s':>10} {'samples/s':>10}  ", end="")
  print("cores by part; busy; first limit", flush=True)
  for num_workers in args.workers:
    config = load_config(args.config, [*SETTINGS, *args.overrides, f"workers.num_workers={num_workers}"])
    row = measure_one(config, args)
    first = rows[0] if rows else row
    row["of_linear"] = row["env_steps_per_s"] / first["env_steps_per_s"] * first["workers"] / num_workers
    row["limit"] = first_limit(row, cores)
    rows.append(row)
    used = ", ".join(f"{part} {share:.2f}" for part, share in row["cores"].items())
    busy = ", ".join(f"{name} {share:.0%}" for name, share in row["busy"].items())
    print(
      f"{num_workers:>7} {row['env_steps_per_s']:>12,.0f} {row['of_linear']:>9.2f} "
      f"{row['segments_per_s']:>10,.1f} {row['samples_per_s']:>10,.0f}  {used}; {busy}; {row['limit']}",
      flush=True,
    )
  settings = {"config": args.config, "overrides": args.overrides, "act_s": args.act, "learn_s": args.learn}
  return {"cores": cores, **settings, "rows": rows}


def main() -> None:
  parser = make_parser(__doc__, "config/minatar/freeway.yaml")
  parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
  parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement (%(default)g)")
  parser.add_argument("--act", type=float, default=0.1, help="seconds of a worker's call (%(default)g)")
  parser.add_argument("--learn", type=float, default=0.02, help="seconds of an update call (%(default)g)")
  parser.add_argument("--parameters", type=int, default=2**20, help="bytes of the parameters (%(default)d)")
  report(parser, measure)


if __name__ == "__main__":
  main()
