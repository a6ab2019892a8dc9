"""Ends a command at a stop signal.

Python's own handler of Ctrl-C raises KeyboardInterrupt between any two instructions. While a C extension is
being imported, this error may end the process with SIGSEGV, or be ignored. Without a handler, SIGTERM ends a
command without cleaning up.
"""

import _thread
import contextlib
import os
import signal
import threading
import time
from types import FrameType

from moozi.run.signals import HANGUP, acknowledge, handled, leave, open_terminals

_RETRY_S = 0.02
_IMPORT_SYSTEM = "<frozen importlib"
# The blocks that are active; a command has one.
_active: list["Interrupts"] = []


def check() -> None:
  """Raises KeyboardInterrupt if a stop signal waits, such as for the end of an import.

  Call this function before other handlers are set.
  """
  for interrupts in _active:
    interrupts.check()


class Interrupts:
  """In its `with` block, the first stop signal prints a line and raises KeyboardInterrupt.

  While a module is being imported or a finalizer runs, the error is raised after that. The second signal ends
  the process at once, with status 128 + its number. Signals that are ignored stay ignored, such as SIGHUP
  under nohup. In a thread other than the main one, the block does nothing.

  Attributes:
    number: the first signal; None before it.
  """

  def __init__(self) -> None:
    self.number: int | None = None
    self._terminals = open_terminals()
    self._handlers = contextlib.ExitStack()
    self._is_waiting = self._is_retry = False

  @property
  def status(self) -> int:
    """The exit status of a command that a signal has ended: 128 + its number; 130 without a signal."""
    return 128 + (signal.SIGINT if self.number is None else self.number)

  def __enter__(self) -> "Interrupts":
    if threading.current_thread() is threading.main_thread():
      self._handlers.enter_context(handled(self._on_signal))
      _active.append(self)
    return self

  def __exit__(self, *_: object) -> None:
    self._is_waiting = False
    self._handlers.close()
    if self in _active:
      _active.remove(self)

  def check(self) -> None:
    """Raises KeyboardInterrupt if a stop signal waits, such as for the end of an import."""
    if self._is_waiting:
      self._is_waiting = False
      raise KeyboardInterrupt

  def _on_signal(self, number: int, frame: FrameType | None) -> None:
    is_retry, self._is_retry = self._is_retry, False
    if self.number is None:
      self.number = number
      if number == HANGUP:
        leave(self._terminals)
      acknowledge(number)
    elif not is_retry:
      os._exit(128 + number)
    if not _may_raise(frame):
      if not self._is_waiting:
        self._is_waiting = True
        # Not a `threading.Thread`: the main thread may hold that module's lock.
        _thread.start_new_thread(self._retry, ())
      return
    self._is_waiting = False
    raise KeyboardInterrupt

  def _retry(self) -> None:
    """Repeats the signal until its error is raised, or once if another handler was set meanwhile."""
    main, number = threading.main_thread().ident, self.number
    assert main is not None
    assert number is not None
    while self._is_waiting:
      time.sleep(_RETRY_S)
      if self._is_waiting and not self._is_retry:
        self._is_retry = True
        self._is_waiting = signal.getsignal(number) == self._on_signal
        signal.pthread_kill(main, number)


def _may_raise(frame: FrameType | None) -> bool:
  """Returns false if the frame or one of its callers imports a module, or is a finalizer."""
  while frame is not None:
    if frame.f_code.co_filename.startswith(_IMPORT_SYSTEM) or frame.f_code.co_name == "__del__":
      return False
    frame = frame.f_back
  return True
