"""Starts and watches runs in separate processes, through the command line."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from moozi.io.checkpoints import CheckpointInfo, list_checkpoints
from moozi.io.metrics import read_metrics
from tests.tiny_run import TINY

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config" / "tiny" / "catch.yaml"
ENDLESS = ("max_env_steps=100000000", "logging.period_s=0.5", "checkpoint.period_s=2")
_started: list[subprocess.Popen] = []


def popen(*arguments: object, **kwargs) -> subprocess.Popen:
  """Starts `moozi` in its own process group; returns the process. It ends with its test (`kill_started`)."""
  process = subprocess.Popen(
    [sys.executable, "-m", "moozi.cli", *map(str, arguments)],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
    **kwargs,
  )
  _started.append(process)
  return process


def kill_started() -> None:
  """Kills the started processes that still run: after a failed test they would slow down all others."""
  for process in _started:
    if process.poll() is None:
      _kill_group(process)
  _started.clear()


def _kill_group(process: subprocess.Popen) -> None:
  os.killpg(process.pid, signal.SIGKILL)
  process.communicate()


@contextlib.contextmanager
def suspended_children(process: subprocess.Popen) -> Iterator[None]:
  """Suspends Ray's processes and the actors of a run inside the `with` block."""
  children = psutil.Process(process.pid).children(recursive=True)
  try:
    _send_each(children, signal.SIGSTOP)
    yield
  finally:
    _send_each(children, signal.SIGCONT)


def _send_each(processes: list[psutil.Process], number: signal.Signals) -> None:
  for process in processes:
    with contextlib.suppress(psutil.NoSuchProcess):
      process.send_signal(number)


def start(folder: Path, *overrides: str, **kwargs) -> subprocess.Popen:
  """Starts a tiny run with Ray in `folder/one`; returns its process."""
  options = (*TINY, f"run.dir={folder}", "run.name=one", "ray.num_cpus=4")
  return popen("train", CONFIG, *options, *overrides, **kwargs)


def finish(process: subprocess.Popen, timeout_s: float = 240.0) -> tuple[str, str]:
  """Waits for the process and returns (stdout, stderr); after the timeout, kills its group and raises."""
  try:
    return process.communicate(timeout=timeout_s)
  except subprocess.TimeoutExpired:
    _kill_group(process)
    raise


def wait_for(process: subprocess.Popen, condition, what: str, timeout_s: float = 600.0) -> None:
  """Waits until `condition()` is true; fails if the process ends first."""
  end = time.monotonic() + timeout_s
  while not condition():
    if process.poll() is not None:
      pytest.fail(f"ended with {process.returncode} before {what}: {process.stderr.read()}")
    assert time.monotonic() < end, f"no {what} after {timeout_s} s"
    time.sleep(0.2)


def ticks(run: Path) -> list[dict]:
  """Returns the lines of metrics.jsonl so far."""
  return read_metrics(run / "metrics.jsonl") if (run / "metrics.jsonl").exists() else []


def steps(run: Path) -> tuple[int, int]:
  """Returns (environment steps, updates) of the newest line of metrics."""
  last = ticks(run)[-1]
  return last["env_steps"], last["learner_steps"]


def faults(run: Path, kind: str) -> float:
  """Returns the number of faults of a kind so far."""
  return ticks(run)[-1].get(f"faults/{kind}", 0)


def wait_for_updates(process: subprocess.Popen, run: Path) -> None:
  wait_for(process, lambda: bool(ticks(run)) and steps(run)[1] > 0, "first update")


def resumable(run: Path) -> list[CheckpointInfo]:
  """Returns the checkpoints that also have a resume state."""
  names = {c.name for c in list_checkpoints(run / "resume")}
  return [c for c in list_checkpoints(run / "checkpoints") if c.name in names]


def wait_for_start(process: subprocess.Popen, run: Path) -> None:
  """Waits for the first checkpoint and the first update."""
  wait_for(process, lambda: bool(resumable(run)), "checkpoint")
  wait_for_updates(process, run)


def wait_for_progress(process: subprocess.Popen, run: Path, what: str) -> None:
  """Waits until both environment steps and updates have increased."""
  env_steps, learner_steps = steps(run)
  wait_for(process, lambda: steps(run)[0] > env_steps and steps(run)[1] > learner_steps, what)


def actors(process: subprocess.Popen, kind: str) -> list[psutil.Process]:
  """Returns the processes of an actor class; Ray puts the class into their command lines."""
  found = psutil.Process(process.pid).children(recursive=True)
  return [p for p in found if p.is_running() and kind in "".join(p.cmdline())]


def kill(process: subprocess.Popen, kind: str, number: signal.Signals = signal.SIGKILL) -> None:
  """Kills all actors of a class, once there are any: after a fault, the next one starts later.

  Args:
    number: the signal that they receive; SIGSTOP suspends them.
  """
  wait_for(process, lambda: actors(process, kind), kind)
  _send_each(actors(process, kind), number)
