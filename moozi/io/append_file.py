"""A file that grows by whole pieces, on a disk that may be full."""

import collections
import contextlib
import os
from pathlib import Path

MAX_PENDING_BYTES = 16 << 20


class AppendFile:
  """Appends pieces (a line, a framed record); no part of one stays in the file where its rest does not fit.

  What could not be written is kept, in order, and goes before the next piece once there is room; of more than
  `max_pending_bytes` the oldest pieces are given up.
  """

  def __init__(self, path: Path, max_pending_bytes: int = MAX_PENDING_BYTES) -> None:
    """Opens the file, or makes it.

    Raises: OSError: it cannot be opened, or is a link.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    self._file = os.open(path, flags, 0o644)
    self._max_pending_bytes = max_pending_bytes
    self._pending: collections.deque[bytes] = collections.deque()
    self._num_pending_bytes = 0

  def write(self, piece: bytes) -> None:
    """Appends a piece, after all that waits.

    Raises: OSError: it could not be written, and waits.
    """
    self._pending.append(piece)
    self._num_pending_bytes += len(piece)
    while self._num_pending_bytes > self._max_pending_bytes and len(self._pending) > 1:
      self._num_pending_bytes -= len(self._pending.popleft())
    self.flush()

  def flush(self) -> None:
    """Writes what waits.

    Raises: OSError: there is still no room.
    """
    while self._pending:
      self._write_whole(self._pending[0])
      self._num_pending_bytes -= len(self._pending.popleft())

  def sync(self) -> None:
    """Writes what waits, and has the disk hold all of it.

    Raises: OSError: it does not.
    """
    self.flush()
    os.fsync(self._file)

  def close(self) -> None:
    """Closes the file, and tries once more to write what waits; a second call does nothing.

    Raises: OSError: what waits is lost. The file is closed.
    """
    if self._file < 0:
      return
    try:
      self.flush()
    finally:
      os.close(self._file)
      self._file = -1

  def _write_whole(self, piece: bytes) -> None:
    begin = os.fstat(self._file).st_size
    rest = memoryview(piece)
    try:
      while rest:
        rest = rest[os.write(self._file, rest) :]
    except OSError:
      # To cut takes no room.
      with contextlib.suppress(OSError):
        os.ftruncate(self._file, begin)
      raise
