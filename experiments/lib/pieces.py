"""Commands that run until they end, or until a piece of time is over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from moozi.core.errors import UserError
from moozi.io.run_lock import RunLock

ROOT = Path(__file__).resolve().parents[2]
"""Where the package lies: found from there whatever the folder of the process that asks."""

MOOZI = (sys.executable, "-m", "moozi.cli")
"""The command line, as this interpreter runs it."""

RUNS = ROOT / "runs"
"""The folder that has a folder for the runs of each experiment."""

_POLL_S = 0.5


def lock_experiments(runs: Path = RUNS) -> RunLock:
  """Keeps other experiments out whose runs lie there: two at once would spoil each other's wall times.

  Raises: RunError: one is at work, or a command that it left running. UserError: the folder cannot be made.
  """
  try:
    runs.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise UserError(f"{runs}: cannot be made: {error.strerror}") from None
  return RunLock(runs, "at an experiment")


class Piece:
  """A stretch of time that commands may take. SIGINT and SIGTERM end it early.

  Use it in a `with`, in the process's main thread.

  Args:
    seconds: how long; None is for ever.
    patience_s: a command that goes on so long after it was told to stop is killed.
  """

  def __init__(self, seconds: float | None, patience_s: float = 180.0) -> None:
    self._end = None if seconds is None else time.monotonic() + seconds
    self._patience_s = patience_s
    self._saved: dict[int, Any] = {}
    self._commands: set[int] = set()

  @property
  def is_over(self) -> bool:
    """Whether its time has come."""
    return self.left_s <= 0

  @property
  def left_s(self) -> float:
    """Seconds until it is over."""
    return float("inf") if self._end is None else self._end - time.monotonic()

  def end(self) -> None:
    """It is over now."""
    self._end = time.monotonic()

  def run(
    self,
    command: Sequence[str | Path],
    stdout: IO[Any] | int,
    stderr: IO[Any] | None,
    on_wait: Callable[[], None] = lambda: None,
    lock: RunLock | None = None,
    env: Mapping[str, str] | None = None,
  ) -> int:
    """Runs a command; when the piece is over it gets one SIGTERM and is waited for.

    It has a session of its own: a Ctrl-C at the terminal reaches it through this process, and once.

    Args:
      command: program and arguments.
      stdout, stderr: files; the first may be `subprocess.DEVNULL`, the second None: this process's own.
      on_wait: called twice a second while it runs.
      lock: the command holds it too: where this process is killed and cannot end it, nobody else takes the
        lock before the command has ended.
      env: environment variables over this process's own.
    Returns: its exit status; below 0 by a signal.
    """
    process = subprocess.Popen(
      [str(part) for part in command],
      stdout=stdout,
      stderr=stderr,
      cwd=ROOT,
      env=None if env is None else os.environ | dict(env),
      start_new_session=True,
      pass_fds=() if lock is None else (lock.fileno(),),
    )
    told_at: float | None = None
    try:
      self._commands.add(process.pid)
      self._name_holder(lock)
      while True:
        try:
          return process.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
          on_wait()
        if self.is_over and told_at is None:
          process.terminate()
          told_at = time.monotonic()
        elif told_at is not None and time.monotonic() - told_at > self._patience_s:
          os.killpg(process.pid, signal.SIGKILL)
    finally:
      if process.poll() is None:
        # Something went wrong here: nothing is left running.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
      self._commands.discard(process.pid)
      self._name_holder(lock)

  def _name_holder(self, lock: RunLock | None) -> None:
    """A command that outlives this process has the lock: who comes second must find it."""
    if lock is not None:
      commands = " and ".join(str(pid) for pid in sorted(self._commands))
      lock.name_holder(f"{os.getpid()} with its command {commands}" if commands else str(os.getpid()))

  def __enter__(self) -> "Piece":
    for number in (signal.SIGINT, signal.SIGTERM):
      self._saved[number] = signal.signal(number, self._on_signal)
    return self

  def __exit__(self, *_: object) -> None:
    for number, handler in self._saved.items():
      signal.signal(number, handler)

  def _on_signal(self, number: int, frame: FrameType | None) -> None:
    self.end()
