"""Replaces environments that raise or hang, up to a bound of consecutive failures.

An alarm in the process's main thread interrupts Python code and waiting system calls that hang. It cannot
interrupt C code that never returns. For that case a timer ends the process, if `allow_exit` permits it.
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

from moozi.core.errors import EnvError, EnvHung, UserError, as_exceptions, one_line
from moozi.envs.environment import Environment

_log = logging.getLogger("moozi.envs")

_STREAM = 0xFA17
# The alarm repeats after this share of the timeout, so a call is interrupted after at most 1.25 timeouts.
_RETRY = 0.25
# The process ends after this number of timeouts in which the alarm had no effect. Calls renew this deadline
# at most once per timeout.
_PATIENCE = 3.0
_exit_log: IO[str] | None = None


FAULTS = (Exception, EnvHung)
"""The errors of an environment that count as faults; see also `EnvGuard.watched`."""


def allow_exit(log: IO[str] | None) -> None:
  """Permits the guard to end this process, with status 1, if the alarm cannot interrupt an environment.

  Use it in processes that are restarted.

  Args:
    log: an open file that receives the stack of every thread before the exit; None withdraws the permission.
  """
  global _exit_log
  _exit_log = log


class EnvGuard:
  """Replaces environments that have raised or hung; see `SyncVectorEnvironment`.

  Args:
    name: the environments' name, for messages.
    seeds: the environments' seeds; the seeds of replacements follow from them.
    make: makes an environment from a seed. None: no replacement, so the first fault raises EnvError.
    max_faults: number of consecutive faults of one environment at which EnvError is raised. The end of an
      episode resets the count.
    timeout_s: an environment that takes longer for one call, such as a step, has hung; None: no limit. The
      limit has no effect outside the main thread, because Python runs signal handlers only there.
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
    self._num_consecutive = [0] * len(seeds)
    self._is_closed = [False] * len(seeds)
    self._called_at: float | None = None
    self._renew_exit_at: float | None = None
    self._watch = _Watch(self)
    self.num_faults = 0

  def episode_ended(self, i: int) -> None:
    """Resets the count of consecutive faults of environment i."""
    self._num_consecutive[i] = 0

  def replace(self, i: int, env: Environment, error: BaseException) -> Environment:
    """Closes environment i, which raised `error`, and returns its replacement.

    Raises: EnvError: too many consecutive faults, including failures to make the replacement.
    """
    self.close(i, env)
    while True:
      self.num_faults += 1
      self._num_consecutive[i] += 1
      reason = f"{type(error).__name__}: {one_line(error)}"
      if isinstance(error, UserError | EnvHung):
        reason = str(error).removeprefix(f"env.name={self._name}: ")
      # Without a replacement EnvError reports the fault, so the traceback is logged at a lower level.
      level = logging.INFO if self._make is None else logging.ERROR
      _log.log(
        level,
        "environment %d of %s: consecutive fault %d",
        i,
        self._name,
        self._num_consecutive[i],
        exc_info=error,
      )
      if self._make is None or self._num_consecutive[i] >= self._max_faults:
        count = f" ({self._num_consecutive[i]} faults in a row; workers.max_env_faults)" if self._make else ""
        raise EnvError(f"env.name={self._name}: {reason}{count}") from error
      try:
        with self.watched():
          env = self._make(int(self._random[i].integers(2**63)))
        self._is_closed[i] = False
        return env
      except FAULTS as again:
        error = again

  def close(self, i: int, env: Environment) -> None:
    """Closes environment i unless it is closed already; logs an error or a hang. Call it while `armed`."""
    if self._is_closed[i]:
      return
    self._is_closed[i] = True
    try:
      with self.watched():
        env.close()
    except FAULTS:
      _log.warning("environment %d of %s cannot be closed", i, self._name, exc_info=True)

  @contextlib.contextmanager
  def armed(self) -> Iterator[None]:
    """Interrupts each `watched` call inside this context that takes too long; the call raises EnvHung."""
    if self._timeout_s is None or threading.current_thread() is not threading.main_thread():
      yield
      return
    before = signal.signal(signal.SIGALRM, self._on_alarm)
    signal.setitimer(signal.ITIMER_REAL, self._timeout_s, _RETRY * self._timeout_s)
    self._schedule_exit(time.monotonic())
    try:
      yield
    finally:
      if self._renew_exit_at is not None:
        faulthandler.cancel_dump_traceback_later()
        self._renew_exit_at = None
      signal.setitimer(signal.ITIMER_REAL, 0.0)
      signal.signal(signal.SIGALRM, before)

  def watched(self) -> contextlib.AbstractContextManager[None]:
    """Times one call of one environment inside this context, while the guard is `armed`.

    Raises: CodeExitError: the environment raises something other than an Exception, such as SystemExit.
      KeyboardInterrupt passes unchanged, and so does SystemExit where `allow_exit` has permitted an exit.
    """
    return self._watch

  def _schedule_exit(self, now: float) -> None:
    """Starts, if permitted, a C thread that can later end the process without the interpreter's lock."""
    if _exit_log is not None and self._timeout_s is not None:
      faulthandler.dump_traceback_later(_PATIENCE * self._timeout_s, exit=True, file=_exit_log)
      self._renew_exit_at = now + self._timeout_s

  def _on_alarm(self, number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if self._called_at is None or self._timeout_s is None or now - self._called_at < self._timeout_s:
      return
    self._called_at = now
    raise EnvHung(f"no answer for {self._timeout_s:g} s (workers.env_timeout_s)")


class _Watch:
  """The context of `EnvGuard.watched`. It is a class because a generator takes longer at each step."""

  def __init__(self, guard: EnvGuard) -> None:
    self._guard = guard

  def __enter__(self) -> None:
    guard = self._guard
    guard._called_at = now = time.monotonic()
    if guard._renew_exit_at is not None and now >= guard._renew_exit_at:
      guard._schedule_exit(now)

  def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
    self._guard._called_at = None
    if error is not None:
      # In a process that is restarted, Ray's handler of SIGTERM raises SystemExit.
      with as_exceptions(keeps_exit=_exit_log is not None):
        raise error
