"""Runs commands within a time limit."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""


class TimeBudget:
  """A time limit for commands. SIGINT and SIGTERM end it early.

  Use it in a `with` statement in the main thread; commands may run in other threads.

  Args:
    patience_s: seconds between SIGTERM and SIGKILL, for a command that still runs after the limit.
  """

  def __init__(self, seconds: float, patience_s: float = 180.0) -> None:
    self._end, self._patience_s = time.monotonic() + seconds, patience_s
    self._handlers: dict[int, Any] = {}

  @property
  def remaining_s(self) -> float:
    """Seconds until the limit; negative after it."""
    return self._end - time.monotonic()

  @property
  def is_over(self) -> bool:
    return self.remaining_s <= 0

  def end(self) -> None:
    self._end = min(self._end, time.monotonic())

  def run(
    self, command: Sequence[str | Path], stdout: Any = None, stderr: Any = None, env: Any = None
  ) -> int:
    """Runs a command from the repository's root, and sends it one SIGTERM at the end of the budget.

    `env` is added to this process's variables. Ctrl-C in the terminal does not reach the command directly,
    because it runs in its own session. An exception in this process kills the command and its children.

    Returns: the exit status; negative for a signal.
    """
    process = subprocess.Popen(
      [str(part) for part in command],
      stdout=stdout,
      stderr=stderr,
      cwd=ROOT,
      env=os.environ | dict(env or {}),
      start_new_session=True,
    )
    is_stopped = False
    try:
      while process.poll() is None:
        if self.is_over and not is_stopped:
          process.terminate()
          is_stopped = True
        elif self.remaining_s < -self._patience_s:
          os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.2)
      return process.returncode
    finally:
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

  def __enter__(self) -> "TimeBudget":
    for number in (signal.SIGINT, signal.SIGTERM):
      self._handlers[number] = signal.signal(number, lambda *_: self.end())
    return self

  def __exit__(self, *_: object) -> None:
    for number, handler in self._handlers.items():
      signal.signal(number, handler)
