"""Acknowledges a stop signal at once, on standard error.

Python runs a signal's handler in the main thread, between two Python instructions. While XLA compiles, the
handler waits. `acknowledged` and `blocked` set no handlers of their own; they acknowledge the first signal.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType

# The signal of a closed terminal.
HANGUP = signal.SIGHUP
# The signals that end a run.
NUMBERS = (signal.SIGINT, signal.SIGTERM, HANGUP)
_POLL_S = 0.1
_acknowledge: list["_Acknowledge"] = []
Handler = Callable[[int, FrameType | None], None]
# Number of active `handled` blocks, and whether `_reset_child` is registered.
_num_handled, _resets_children = 0, False
# The signal mask of a thread that forks.
_before_fork = threading.local()


@contextlib.contextmanager
def handled(handler: Handler, respected: Collection[int] = NUMBERS) -> Iterator[None]:
  """Sets the handler of the stop signals in the block.

  A process that is forked in the block has the default handlers, because an environment may end the processes
  that it starts with SIGTERM, and wait for them.

  Args:
    respected: the signals that stay ignored if they were ignored before, such as SIGHUP under nohup.
  """
  global _num_handled, _resets_children
  if not _resets_children:
    _resets_children = True
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_reset_child)
  saved = {}
  _num_handled += 1
  try:
    for number in NUMBERS:
      if number not in respected or signal.getsignal(number) != signal.SIG_IGN:
        saved[number] = signal.signal(number, handler)
    yield
  finally:
    for number, before in saved.items():
      signal.signal(number, before)
    _num_handled -= 1


def _block() -> None:
  """Blocks the stop signals before a fork, until the child has its handlers."""
  _before_fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS if _num_handled else ())


def _unblock() -> None:
  signal.pthread_sigmask(signal.SIG_SETMASK, _before_fork.mask)


def _reset_child() -> None:
  """Sets the default handlers in a forked process, which also has the pipe of `acknowledged`.

  Python sets handlers in the main thread only, which is the forking thread in the child.
  """
  if _num_handled:
    signal.set_wakeup_fd(-1)
    for number in NUMBERS:
      if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
  _unblock()


def acknowledge(number: int) -> None:
  """Prints that a signal was received."""
  text = f"\nmoozi: {signal.Signals(number).name} received; stopping\n"
  # Writes to the file descriptor: Python's stream has locks, which the main thread may hold.
  with contextlib.suppress(OSError):
    os.write(2, text.encode())


@contextlib.contextmanager
def acknowledged() -> Iterator[None]:
  """Prints a line at the first stop signal in the block, and ends the process at the second.

  The caller sets the handlers that request the stop. The block must be entered in the main thread.
  """
  acknowledge = _Acknowledge()
  # Python's C-level signal handler writes the signal's number to this pipe, even if the main thread is busy.
  read, write = os.pipe()
  os.set_blocking(write, False)
  thread = threading.Thread(target=_watch, args=(read, acknowledge), name="stop signals", daemon=True)
  thread.start()
  before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
  _acknowledge.append(acknowledge)
  try:
    yield
  finally:
    _acknowledge.remove(acknowledge)
    signal.set_wakeup_fd(before)
    os.write(write, b"\0")  # not the end of the pipe, which a forked child may hold open
    os.close(write)
    thread.join()
    os.close(read)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
  """Blocks stop signals in the processes that its block starts, and in their children.

  Ctrl-C and a closed terminal reach the whole process group, and so may a scheduler's SIGTERM. Ray's
  processes must keep running until the driver has taken its last checkpoint and shuts them down. The handler
  of a signal that arrives in the block runs after the block. In a block of `acknowledged`, the signal is
  acknowledged within 0.1 s.
  """
  handlers = {number: signal.getsignal(number) for number in NUMBERS}
  before = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
  is_over = threading.Event()
  thread = threading.Thread(target=_watch_pending, args=(is_over,), daemon=True)
  thread.start()
  try:
    yield
  finally:
    is_over.set()
    thread.join()
    # Ray's core installs a handler that prints a stack trace and exits; this loop restores the previous
    # handlers. Python can set handlers in the main thread only.
    if threading.current_thread() is threading.main_thread():
      for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def open_terminals() -> list[int]:
  """Returns which of standard output and error are terminals.

  Call this function before SIGHUP, because a closed terminal is not recognized as one.
  """
  return [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]


def leave(terminals: list[int]) -> None:
  """Redirects output of a closed terminal to os.devnull, because writing to the terminal would raise."""
  null = os.open(os.devnull, os.O_WRONLY)
  for descriptor in terminals:
    os.dup2(null, descriptor)


class _Acknowledge:
  """Prints a line for the first stop signal."""

  def __init__(self) -> None:
    self._lock, self._is_done = threading.Lock(), False

  def __call__(self, number: int) -> None:
    with self._lock:
      is_done, self._is_done = self._is_done, True
    if not is_done:
      acknowledge(number)


def _watch(read: int, acknowledge: _Acknowledge) -> None:
  """Reads signal numbers until a 0; acknowledges the first, and exits at the second."""
  signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
  is_stopping, received = False, b""
  while 0 not in received:
    received = os.read(read, 64)
    for number in sorted(number for number in received if number in NUMBERS):
      if is_stopping:
        os._exit(128 + number)
      is_stopping = True
      acknowledge(number)


def _watch_pending(is_over: threading.Event) -> None:
  """Acknowledges blocked stop signals until `is_over` is set; the signals stay pending."""
  while not is_over.wait(_POLL_S):
    for number in signal.sigpending().intersection(NUMBERS):
      for acknowledge in _acknowledge:
        acknowledge(number)
