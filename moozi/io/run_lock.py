"""A lock that lets one process at a time write to a folder. The kernel releases it if the process ends."""

import contextlib
import errno
import fcntl
import logging
import os
import stat
import time
from pathlib import Path

from moozi.core.errors import RunError, reason_of

LOCK = "lock"
_NUM_TRIES, _RETRY_S = 5, 0.01
_log = logging.getLogger("moozi.driver")


def is_locked(run: Path) -> bool:
  """Returns whether a process holds the lock on a folder. Creates no file."""
  # Without O_NONBLOCK, opening a pipe of this name would wait for its writer.
  flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
  # An OSError means that there is no such file, or that the file system has no locks.
  with contextlib.suppress(OSError), os.fdopen(os.open(run / LOCK, flags), "rb") as file:
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
      return False
    try:
      fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      return True
  return False


def _lock(file: int) -> None:
  """Takes the lock on an open file. Raises OSError if another process has it."""
  for num_left in reversed(range(_NUM_TRIES)):
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      break
    except BlockingIOError:
      # `is_locked` of another process holds the lock for microseconds.
      if not num_left:
        raise
      time.sleep(_RETRY_S)


class RunLock:
  """Holds a lock on the file `<run>/lock` until `close`.

  On a file system without locks, the constructor only logs a warning. The file contains the process number of
  the last holder. The release does not remove the file, because that could remove another process's lock. If
  a process has inherited the descriptor, the lock is held until `close` or until both processes have ended.
  """

  def __init__(self, run: Path, doing: str = "writing into this run") -> None:
    """Takes the lock. `doing` describes the holder's work, for the error message.

    Raises: RunError: another process has the lock, or the file cannot be created.
    """
    path = run / LOCK
    try:
      # Without O_NOFOLLOW, a symbolic link could redirect writes to another file.
      self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
      raise RunError(f"{path}: cannot be created: {reason_of(error)}") from None
    try:
      _lock(self._file)
    except OSError as error:
      if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
        holder = os.pread(self._file, 100, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(self._file)
        raise RunError(f"{run}: process {holder} is {doing}; only one process can do so at a time") from None
      # Some network file systems have no locks; runs must work there too.
      _log.warning("%s: this file system has no locks (%s); a second process can write here too", path, error)
    # Another process shows this number if it cannot take the lock. On a full disk it is missing.
    with contextlib.suppress(OSError):
      os.ftruncate(self._file, 0)
      os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

  def close(self) -> None:
    """Releases the lock; a second call does nothing."""
    if self._file >= 0:
      # Unlocked explicitly, because a child process that is starting may still have the file open.
      with contextlib.suppress(OSError):
        fcntl.flock(self._file, fcntl.LOCK_UN)
      os.close(self._file)
      self._file = -1

  def __enter__(self) -> "RunLock":
    return self

  def __exit__(self, *_: object) -> None:
    self.close()
