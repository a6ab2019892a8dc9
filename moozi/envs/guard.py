"""Environments that raise or hang: each is made anew and told of, up to a bound of repeats.

A hang is ended by an alarm in the process's main thread. It reaches Python code and system calls that wait;
it does not reach code in C that never returns. There the last resort is the end of the process, in those that
allow it (`allow_exit`).
"""

import contextlib
import faulthandler
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import IO

import numpy as np

from moozi.core.errors import EnvError
from moozi.envs.environment import Environment

_log = logging.getLogger("moozi.envs")

_STREAM = 0xFA17
# An alarm that finds nobody late comes again after this share of the time allowed.
_RETRY = 0.25
# The process ends after so many times the time allowed, the alarm in vain. It is set anew at the first call
# after one such time, and the alarm leaves no call more than 1.25 of them.
_PATIENCE = 3.0
_exit_log: IO[str] | None = None


# No Exception: an environment that catches those must not catch this one.
class EnvHung(BaseException):
  """An environment has not answered in time."""


def allow_exit(log: IO[str] | None) -> None:
  """Lets environments that no alarm reaches end this process, with status 1: for one that somebody makes
  anew.

  Args:
    log: a file, open as long as the process is, that is told where each thread stood; None allows it no more.
  """
  global _exit_log
  _exit_log = log


class EnvGuard:
  """Makes environments anew that have raised or hung; see `SyncVectorEnvironment`.

  Args:
    name: of the environments, for messages.
    seeds: of the environments; the seeds of those made anew follow from them.
    make: makes an environment from a seed; None makes none: the first fault is one too many.
    max_faults: the run ends at so many faults of one environment in a row, that is without an episode of it
      that
      came to its end in between.
    timeout_s: an environment that takes longer over a step or a reset has hung; None waits for ever. Without
      effect
      outside the main thread, which alone can be alarmed.
  """

  def __init__(
    self,
    name: str,
    seeds: Sequence[int],
    make: Callable[[int], Environment] | None,
    max_faults: int,
    timeout_s: float | None,
  ) -> None:
    self._name, self._make, self._timeout_s = name, make, timeout_s
    self._max_faults = max_faults if make is not None else 1
    self._random = [np.random.default_rng([seed, _STREAM]) for seed in seeds]
    self._in_a_row = [0] * len(seeds)
    self._since: float | None = None
    self._resort_at: float | None = None  # when the last resort is to be set anew
    self.num_faults = 0

  def has_ended(self, i: int) -> None:
    """Environment i has come to an episode's end: it is sound."""
    self._in_a_row[i] = 0

  def replace(self, i: int, env: Environment, error: BaseException) -> Environment:
    """A new environment in the place of environment i, which has raised `error`.

    Raises: EnvError: there were too many faults in a row, those of making the new environment among them.
    """
    self.watch()
    try:
      env.close()
    except (Exception, EnvHung):
      _log.warning("environment %d of %s cannot be closed", i, self._name, exc_info=True)
    finally:
      self.rest()
    while True:
      self.num_faults += 1
      self._in_a_row[i] += 1
      reason = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(error)
      # Where no environment is made anew the error is the caller's to tell; a log still has its traceback.
      level = logging.INFO if self._make is None else logging.ERROR
      _log.log(
        level, "environment %d of %s, fault %d in a row", i, self._name, self._in_a_row[i], exc_info=error
      )
      if self._make is None or self._in_a_row[i] >= self._max_faults:
        allowed = f" ({self._in_a_row[i]} faults in a row; workers.max_env_faults)" if self._make else ""
        raise EnvError(f"env.name={self._name}: {reason}{allowed}") from error
      self.watch()
      try:
        return self._make(int(self._random[i].integers(2**63)))
      except (Exception, EnvHung) as again:
        error = again
      finally:
        self.rest()

  @contextlib.contextmanager
  def armed(self) -> Iterator[None]:
    """While it lasts, a watched call that takes too long is interrupted by EnvHung."""
    if self._timeout_s is None or threading.current_thread() is not threading.main_thread():
      yield
      return
    before = signal.signal(signal.SIGALRM, self._on_alarm)
    signal.setitimer(signal.ITIMER_REAL, self._timeout_s, _RETRY * self._timeout_s)
    self._set_last_resort(time.monotonic())
    try:
      yield
    finally:
      if self._resort_at is not None:
        faulthandler.cancel_dump_traceback_later()
        self._resort_at = None
      signal.setitimer(signal.ITIMER_REAL, 0.0)
      signal.signal(signal.SIGALRM, before)

  def watch(self) -> None:
    """A call of one environment begins; where `armed` it is timed until `rest`."""
    self._since = now = time.monotonic()
    if self._resort_at is not None and now >= self._resort_at:
      self._set_last_resort(now)

  def rest(self) -> None:
    """The call is over."""
    self._since = None

  def _set_last_resort(self, now: float) -> None:
    """Where allowed, a thread in C that ends the process later; it needs no turn of the interpreter's."""
    if _exit_log is not None and self._timeout_s is not None:
      faulthandler.dump_traceback_later(_PATIENCE * self._timeout_s, exit=True, file=_exit_log)
      self._resort_at = now + self._timeout_s

  def _on_alarm(self, number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if self._since is not None and self._timeout_s is not None and now - self._since >= self._timeout_s:
      self._since = now
      raise EnvHung(f"no answer for {self._timeout_s:g} s (workers.env_timeout_s)")
