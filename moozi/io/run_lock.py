"""The lock on a folder: one process at a time writes there. The kernel frees it when that one dies."""

import contextlib
import errno
import fcntl
import logging
import os
from pathlib import Path

from moozi.core.errors import RunError

LOCK = "lock"
_log = logging.getLogger("moozi.driver")


class RunLock:
  """Holds `<run>/lock` from its making to `close`.

  The file stays when the lock is given back: whoever removed it could remove another one's. What it says, the
  process that had it last, is for people and for the error of who comes second.

  A process that is started with the lock's descriptor among its own holds it too, until it ends.
  """

  def __init__(self, run: Path, doing: str = "writing into this run") -> None:
    """Takes the lock.

    Args:
      run: the folder.
      doing: what who comes second is told of who has it.
    Raises: RunError: another process has it, named by its id; or the lock cannot be made.
    """
    path = run / LOCK
    try:
      # A link in its place would have another file written to.
      self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
      raise RunError(f"{path}: cannot be made: {error.strerror}") from None
    try:
      fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
        holder = os.pread(self._file, 100, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(self._file)
        raise RunError(f"{run}: process {holder} is {doing}; one at a time can") from None
      # Some network file systems have no locks: a run must be possible there.
      _log.warning(
        "%s: this file system has no locks (%s); a second process would not be kept out", path, error
      )
    self.name_holder(str(os.getpid()))

  def name_holder(self, holder: str) -> None:
    """Writes who has the lock, for who comes second."""
    # On a full disk the lock holds all the same.
    with contextlib.suppress(OSError):
      os.ftruncate(self._file, 0)
      os.pwrite(self._file, f"{holder}\n".encode(), 0)

  def fileno(self) -> int:
    """The lock's descriptor."""
    return self._file

  def close(self) -> None:
    """Gives the lock back; a second call does nothing."""
    if self._file >= 0:
      # Given back by name: a child that is just being started may still have the file open.
      with contextlib.suppress(OSError):
        fcntl.flock(self._file, fcntl.LOCK_UN)
      os.close(self._file)
      self._file = -1

  def __enter__(self) -> "RunLock":
    return self

  def __exit__(self, *_: object) -> None:
    self.close()
