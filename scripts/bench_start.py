"""Measures the time until a run's first environment steps; part of `make bench`.

    python scripts/bench_start.py [CONFIG] [key=value …] [--workers 1,4] [--json FILE]

For each number of training workers the script starts `moozi train` twice: with an empty compilation cache,
and with the cache that the first start has filled. It prints the seconds from the command to each phase, and
the processor seconds of each kind of process until the first segment. Processor seconds depend less on other
load on the machine. A number of workers is skipped if its processes do not fit into the free memory.
"""

import argparse
import collections
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from measuring import make_parser, report

from moozi.io.machine import num_cores

# Resident memory of one worker with JAX, and of all other processes of a run together.
WORKER_MIB, OTHERS_MIB = 400, 2_500
LIMIT_S, GOAL_S = 600.0, 15.0
ACTED = "acted the first segment"
UPDATED = "compiled the update"


def start(config: str, overrides: list[str], num_workers: int, cache: Path) -> dict[str, dict[str, float]]:
  """Starts a run and stops it after the first segment and the first compiled update.

  Returns: the seconds from the command to each phase, and the processor seconds of each kind of process.
  """
  with tempfile.TemporaryDirectory() as folder:
    settings = [
      f"workers.num_workers={num_workers}",
      f"ray.num_cpus={max(num_cores(), 2 + num_workers // 2)}",
      f"run.dir={folder}",
      "run.name=start",
      "runtime=ray",
      "logging.progress=plain",
    ]
    environment = os.environ | {"MOOZI_COMPILATION_CACHE": str(cache)}
    begin = time.monotonic()
    process = subprocess.Popen(
      [sys.executable, "-m", "moozi.cli", "train", config, *settings, *overrides],
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
      env=environment,
    )
    phases: dict[str, float] = {}
    processor_s: dict[str, float] = {}
    lines: list[str] = []
    assert process.stderr is not None
    try:
      while not {ACTED, UPDATED} <= phases.keys() and (line := process.stderr.readline()):
        lines.append(line)
        if time.monotonic() - begin > LIMIT_S:
          raise SystemExit(f"no first segment and update within {LIMIT_S:.0f} s")
        if match := re.match(r" *\d+ s  (.*)", line):
          phases.setdefault(match[1], time.monotonic() - begin)
          if match[1] == ACTED:
            processor_s = processor_seconds(process.pid)
    finally:
      process.send_signal(signal.SIGTERM)
      _, rest = process.communicate(timeout=LIMIT_S)
    if ACTED not in phases:
      raise SystemExit("".join(lines) + rest)
    return {"phases": phases, "processor_s": processor_s}


def processor_seconds(pid: int) -> dict[str, float]:
  """Returns the processor seconds of a run's processes so far, by kind."""
  found: collections.Counter[str] = collections.Counter()
  driver = psutil.Process(pid)
  for process in (driver, *driver.children(recursive=True)):
    try:
      times, command = process.cpu_times(), " ".join(process.cmdline())
    except psutil.Error:
      continue
    actor = re.match(r"ray::(\w+)", command)
    found["driver" if process == driver else actor[1] if actor else "Ray"] += times.user + times.system
  return dict(found)


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
  figures = []
  for num_workers in map(int, args.workers.split(",")):
    free_mib = psutil.virtual_memory().available / 2**20
    if free_mib < OTHERS_MIB + num_workers * WORKER_MIB:
      print(f"{num_workers} workers: skipped, {free_mib:,.0f} MiB are free")
      continue
    with tempfile.TemporaryDirectory() as folder:
      for name in ("first", "second"):
        result = start(args.config, args.overrides, num_workers, Path(folder))
        figures.append({"workers": num_workers, "start": name, **result})
        seconds = result["phases"][ACTED]
        goal = f" (goal {GOAL_S:.0f})" if (name, num_workers) == ("second", 1) else ""
        print(f"{num_workers} workers, {name} start: {seconds:.1f} s to the first segment{goal}")
        print("  phases: " + _row(result["phases"]))
        print("  processor seconds: " + _row(result["processor_s"]), flush=True)
  return figures


def _row(figures: dict[str, float]) -> str:
  return "; ".join(f"{name} {value:.1f}" for name, value in figures.items())


def main() -> None:
  parser = make_parser(__doc__, "config/minatar/breakout.yaml")
  parser.add_argument("--workers", default="1,4,16", help="numbers of training workers, with commas")
  report(parser, measure)


if __name__ == "__main__":
  main()
