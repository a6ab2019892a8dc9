"""Measures MooZi, mujax, muax and LightZero on the same work, in alternation, each on one core.

    python -m experiments.peers.run                        # the systems are installed at the first call
    python -m experiments.peers.run --install              # only install them
    python -m experiments.peers.run --repetitions 1 --simulations 8 --seconds 1 --share 0.1   # a quick check
    python -m experiments.peers.pages --readme             # writes the tables into the pages

Each system runs by its public interface in a process of its own (`drivers/`). Each repetition starts with
another system. If a system cannot be installed or fails, its reason is in the results, and the others are
measured.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from experiments.lib.command import command, positive_int
from experiments.peers.drivers.job import MARK, VARIABLE
from experiments.peers.environments import default_folder, install, python_of, reason_of
from experiments.peers.work import SIMULATIONS, SYSTEMS, System, Work, job_of
from moozi.core.errors import UserError
from moozi.experiments.results import write_json
from moozi.io.checkpoints import code_commit
from moozi.io.machine import describe_machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "speed.json"
DRIVERS = HERE / "drivers"

# One thread for numpy and torch; XLA uses as many as the process has cores.
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def parse_result(stdout: str) -> dict[str, Any] | None:
  """Returns the figures on the last line with a result, or None without one.

  Raises: ValueError: the line is cut off.
  """
  lines = [line for line in stdout.splitlines() if line.startswith(MARK)]
  return json.loads(lines[-1].removeprefix(MARK)) if lines else None


@contextlib.contextmanager
def _on_core(core: int) -> Iterator[None]:
  """Keeps this thread, and the processes that it starts, on one core."""
  before = os.sched_getaffinity(0)
  os.sched_setaffinity(0, {core})
  try:
    yield
  finally:
    os.sched_setaffinity(0, before)


def run_driver(system: System, job: dict[str, Any], envs: Path, core: int) -> dict[str, Any]:
  """Runs a job in a process on one core. Returns its figures, or `{"failure": reason}`."""
  # Compiled programs are kept between repetitions; compilation is not timed in any case.
  cache = {
    "JAX_COMPILATION_CACHE_DIR": str(envs / "compiled" / system.key),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  }
  # This project's package is for its own driver only.
  paths = [str(DRIVERS)] if system.requirements else [str(DRIVERS), str(HERE.parents[1])]
  settings = {VARIABLE: json.dumps(job), "PYTHONPATH": os.pathsep.join(paths)}
  with tempfile.TemporaryDirectory() as folder:
    try:
      with _on_core(core):
        result = subprocess.run(
          [str(python_of(system, envs)), str(DRIVERS / system.driver)],
          env=os.environ | _THREADS | cache | settings,
          cwd=folder,
          capture_output=True,
          text=True,
          timeout=system.timeout,
          check=False,
        )
    except subprocess.TimeoutExpired:
      return {"failure": f"no result after {system.timeout:g} s"}
    except OSError as error:
      return {"failure": f"cannot be started: {error}"}
  try:
    figures = parse_result(result.stdout)
  except ValueError:
    return {"failure": "the result cannot be read"}
  if result.returncode or figures is None:
    return {"failure": reason_of(result.stderr) or f"exit status {result.returncode} without a result"}
  return figures


def measure(
  envs: Path,
  repetitions: int,
  seconds: float,
  share: float = 1.0,
  simulations: Sequence[int] = SIMULATIONS,
  systems: Sequence[System] = SYSTEMS,
  core: int | None = None,
) -> dict[str, Any]:
  """Installs and measures the systems; a failure never stops the others.

  Returns: settings and machine, and under `rows` one entry for each job: system, simulations, repetition,
    and its figures or its failure. A system that is not installed has one row, with its failure.
  """
  core = max(os.sched_getaffinity(0)) if core is None else core
  busy = 0.0
  envs.mkdir(parents=True, exist_ok=True)
  rows: list[dict[str, Any]] = []
  installed = []
  for system in systems:
    print(f"installing {system.name}", file=sys.stderr)
    if failure := install(system, envs, envs / f"{system.key}.log"):
      rows.append({"system": system.key, "failure": failure})
    else:
      installed.append(system)
  for repetition in range(repetitions):
    turn = repetition % max(1, len(installed))
    busy = max(
      busy, psutil.cpu_percent(interval=1) / 100
    )  # no job runs now, so this is what other programs use
    for count in simulations:
      for system in (*installed[turn:], *installed[:turn]):
        job = job_of(system, count, seconds, share)
        row = {"system": system.key, "simulations": count, "repetition": repetition}
        row |= run_driver(system, job, envs, core)
        print(json.dumps(row), file=sys.stderr)
        rows.append(row)
  return {
    "machine": describe_machine() | {"python": sys.version.split()[0]},
    "commit": code_commit(),
    "repetitions": repetitions,
    "seconds": seconds,
    "share": share,
    "simulations": list(simulations),
    "busy": busy,
    "rows": rows,
  }


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument(
    "--envs", type=Path, default=default_folder(), help="folder of the environments (%(default)s)"
  )
  parser.add_argument("--repetitions", type=positive_int, default=3, help="default %(default)s")
  parser.add_argument(
    "--seconds", type=float, default=Work.seconds, help="of each part that is timed alone (%(default)g)"
  )
  parser.add_argument(
    "--share", type=float, default=1.0, help="part of the training steps to time (%(default)g)"
  )
  parser.add_argument("--simulations", type=positive_int, nargs="+", default=SIMULATIONS)
  parser.add_argument("--install", action="store_true", help="only install the systems")
  options = parser.parse_args(arguments)
  if not hasattr(os, "sched_setaffinity"):
    raise UserError("needs Linux, to run a process on one core")
  repetitions = 0 if options.install else options.repetitions
  found = measure(options.envs.resolve(), repetitions, options.seconds, options.share, options.simulations)
  failed = [row for row in found["rows"] if "failure" in row]
  if not options.install:
    write_json(RESULTS, found)
    print(f"written: {RESULTS}; now python -m experiments.peers.pages --readme")
  for row in failed:
    print(f"{row['system']}: {row['failure']}", file=sys.stderr)
  return 0


if __name__ == "__main__":
  sys.exit(main())
