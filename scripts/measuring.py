"""Functions that the benchmarks share: arguments, JSON, calls in turn, other processes, runs with Ray."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from moozi.io.machine import num_cores

WARMUP_S = 60.0
Rates = dict[str, list[float]]


def make_parser(doc: str | None, config: str | None = None) -> argparse.ArgumentParser:
  """Returns a parser of `--json` and, if there is a default configuration, of CONFIG and key=value."""
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  if config is not None:
    parser.add_argument("config", nargs="?", default=config)
    parser.add_argument("overrides", nargs="*")
  parser.add_argument("--json", type=Path, help="also write the figures to this file")
  return parser


def report(parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Any]) -> None:
  """Prints the state of the machine, measures, and writes the returned figures to the file of `--json`."""
  args = parser.parse_intermixed_args()
  # A setting in front of which no configuration stands belongs to the default one.
  if "=" in getattr(args, "config", ""):
    args.config, args.overrides = parser.get_default("config"), [args.config, *args.overrides]
  print(f"# {num_cores()} cores; load average before: {os.getloadavg()[0]:.2f}", flush=True)
  figures = measure(args)
  if args.json:
    args.json.write_text(json.dumps(figures, indent=2) + "\n")


def figures_of_process(script: str, threads: int, arguments: Sequence[str]) -> Any:
  """Runs a benchmark in a process with `threads` threads, on the processor; returns its figures."""
  environment = os.environ | {"NPROC": str(threads), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": str(threads)}
  with tempfile.TemporaryDirectory() as folder:
    out = Path(folder) / "figures.json"
    command = [sys.executable, script, *arguments, "--json", str(out)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def rates_in_turn(
  calls: Mapping[str, Callable[[], int]],
  rounds: int = 3,
  turn_s: float = 0.0,
  seconds: float = 0.0,
  clock: Callable[[], float] = time.perf_counter,
) -> Rates:
  """Returns the rates per second of calls, one rate per round.

  First makes each call twice, for compilation. Then the calls take turns.

  Args:
    calls: functions that return how many steps they have made.
    rounds: number of rounds; there are more until `seconds` have passed.
    turn_s: duration of a turn; 0: one call.
    clock: `time.process_time` for rates per second of processor time, of all threads.
  """
  for call in calls.values():
    call()
    call()
  rates: Rates = {name: [] for name in calls}
  start, num_rounds = clock(), 0
  while num_rounds < rounds or clock() - start < seconds:
    num_rounds += 1
    for name, call in calls.items():
      begin = clock()
      count = call()
      while (elapsed := clock() - begin) < turn_s:
        count += call()
      rates[name].append(count / elapsed)
  return rates


def print_rates(rates: Rates, unit: str, title: str = "") -> None:
  """Prints the median rate of each call, and its ratios to the first call's rate in the same round."""
  first, *_ = rates
  for name, found in rates.items():
    ratios = [rate / other for rate, other in zip(found, rates[first], strict=True)]
    print(
      f"{title + name:<36} {statistics.median(found):>10,.0f} {unit}  {statistics.median(ratios):>6.2f} of "
      f"{first} (from {min(ratios):.2f} to {max(ratios):.2f})",
      flush=True,
    )


def end_to_end(config_path: str, overrides: list[str], seconds: float, batch_size: int) -> dict[str, float]:
  """Trains through Ray; returns rates over the window from the warm-up to the end."""
  settings = ("runtime=ray", f"max_wall_s={seconds}", "logging.progress=none", "evaluation.final_episodes=1")
  with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, "-m", "moozi.cli", "train", config_path, *overrides, *settings]
    command += [f"run.dir={folder}", "run.name=bench"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = (Path(folder) / "bench" / "metrics.jsonl").read_text().splitlines()
  ticks = [json.loads(line) for line in lines]
  window = [t for t in ticks if WARMUP_S <= t["wall_s"] <= seconds and "train/sample_reuse" in t]
  if len(window) < 2:
    raise SystemExit(f"--seconds {seconds:g}: too short for the warm-up of {WARMUP_S:g} s")
  first, last = window[0], window[-1]
  elapsed, steps, updates = (last[name] - first[name] for name in ("wall_s", "env_steps", "learner_steps"))
  return {
    "window_s": elapsed,
    "env_steps_per_s": steps / elapsed,
    "sample_reuse": updates * batch_size / steps,  # over the window, not since the start of training
    "evaluations": sum("test/return_mean" in t for t in window),
  }
