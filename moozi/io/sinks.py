"""Handles full disks: append-only files that repeat failed writes, and a guard that lets the run continue."""

import collections
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from moozi.core.errors import reason_of

MAX_PENDING_BYTES = 16 << 20
_log = logging.getLogger("moozi.driver")


class AppendFile:
  """Appends whole records, such as lines, to a file.

  If a record does not fit on the disk, its written part is removed. The record stays pending, and is written
  before the next one. If more than `max_pending_bytes` are pending, the oldest records are dropped, but not
  the last one.
  """

  def __init__(self, path: Path, max_pending_bytes: int = MAX_PENDING_BYTES) -> None:
    """Opens or creates the file. Raises OSError if it cannot be opened or is a symbolic link."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    self._file = os.open(path, flags, 0o644)
    self._max_pending_bytes = max_pending_bytes
    self._pending: collections.deque[bytes] = collections.deque()
    self._num_pending_bytes = 0

  def write(self, record: bytes) -> None:
    """Appends a record after all pending ones. Raises OSError if it cannot be written; it is then pending."""
    self._pending.append(record)
    self._num_pending_bytes += len(record)
    while self._num_pending_bytes > self._max_pending_bytes and len(self._pending) > 1:
      self._num_pending_bytes -= len(self._pending.popleft())
    self.flush()

  def flush(self) -> None:
    """Writes the pending records. Raises OSError if the disk is still full."""
    while self._pending:
      size, rest = os.fstat(self._file).st_size, memoryview(self._pending[0])
      try:
        while rest:
          rest = rest[os.write(self._file, rest) :]
      except OSError:
        # Removes the partial record; this works on a full disk.
        with contextlib.suppress(OSError):
          os.ftruncate(self._file, size)
        raise
      self._num_pending_bytes -= len(self._pending.popleft())

  def sync(self) -> None:
    """Writes the pending records and calls fsync. Raises OSError if either fails."""
    self.flush()
    os.fsync(self._file)

  def close(self) -> None:
    """Writes the pending records and closes the file; a second call does nothing.

    Raises: OSError: the pending records cannot be written and are lost. The file is closed.
    """
    if self._file < 0:
      return
    try:
      self.flush()
    finally:
      os.close(self._file)
      self._file = -1


class SinkGuard:
  """Suppresses and counts errors of the files and services to which a run writes, so that the run continues.

  `report` is called with a line for the user when such a sink starts to fail, and when it works again. On a
  disk that is nearly full, short writes succeed between failures. A sink that fails again after it worked
  must therefore succeed twice as often in a row before it counts as working the next time.

  Attributes:
    num_failures: the number of suppressed errors.
    reasons: why each sink failed last.
  """

  def __init__(self, report: Callable[[str], None]) -> None:
    self._report = report
    self.num_failures = 0
    self.reasons: dict[str, str] = {}
    # For each failing sink, the successes in a row that are missing before it works again.
    self._missing: dict[str, int] = {}
    self._needed: dict[str, int] = {}

  @contextlib.contextmanager
  def writing(self, sink: str, errors: type[Exception] = OSError) -> Iterator[None]:
    """Suppresses and counts an error of the block; `sink` is the name of the sink in messages."""
    try:
      yield
    except errors as error:
      self.num_failures += 1
      self.reasons[sink] = reason_of(error)
      is_new = sink not in self._missing
      if is_new:
        self._needed[sink] = 2 * self._needed.get(sink, 0) or 1
      self._missing[sink] = self._needed[sink]
      if not is_new:
        return
      _log.exception("%s cannot be written", sink)
      self._report(f"{sink} cannot be written: {reason_of(error)}; the run continues and tries again")
    else:
      if sink not in self._missing:
        return
      self._missing[sink] -= 1
      if not self._missing[sink]:
        del self._missing[sink]
        _log.info("%s can be written again", sink)
        self._report(f"{sink} can be written again")
