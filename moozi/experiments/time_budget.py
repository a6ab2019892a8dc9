"""Runs commands within a time limit."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from moozi.run.signals import handled


class TimeBudget:
  """A time limit for commands. SIGINT, SIGTERM or SIGHUP ends it early; a second signal kills the commands.

  Use it in a `with` statement in the main thread; `run` may be called in other threads.

  Args:
    seconds: the time limit.
    patience_s: seconds after the limit until a command that is still running gets SIGKILL.
  """

  def __init__(self, seconds: float, patience_s: float = 180.0) -> None:
    self._end, self._patience_s = time.monotonic() + seconds, patience_s
    self._handlers = contextlib.ExitStack()
    self._num_signals = 0

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
    """Runs a command, and sends it one SIGTERM at the end of the budget.

    Ctrl-C in the terminal does not reach the command, because the command runs in its own session. An
    exception in this call kills the command and its children.

    Args:
      env: environment variables to add to those of this process.

    Returns: the exit status; -N if signal N ended the command.
    """
    process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
      [str(part) for part in command],
      stdout=stdout,
      stderr=stderr,
      env=os.environ | dict(env or {}),
      start_new_session=True,
    )
    is_stopped = False
    try:
      while process.poll() is None:
        if self.is_over and not is_stopped:
          process.terminate()
          is_stopped = True
        elif self._num_signals > 1 or self.remaining_s < -self._patience_s:
          os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.2)
      return process.returncode
    finally:
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

  def __enter__(self) -> "TimeBudget":
    self._handlers.enter_context(handled(self._on_signal))
    return self

  def __exit__(self, *_: object) -> None:
    self._handlers.close()

  def _on_signal(self, number: int, frame: FrameType | None) -> None:
    self._num_signals += 1
    self.end()
