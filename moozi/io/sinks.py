"""Handles full disks: append-only files that retry, and a guard that lets the run continue."""

import collections
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

MAX_PENDING_BYTES = 16 << 20
_log = logging.getLogger("moozi.driver")


class AppendFile:
  """A file that grows by whole records, such as lines.

  A record is written whole or not at all. If it does not fit on the disk, it stays pending, in order, and is
  written before the next record. Beyond `max_pending_bytes` the oldest pending records are dropped.
  """

  def __init__(self, path: Path, max_pending_bytes: int = MAX_PENDING_BYTES) -> None:
    """Opens or creates the file. Raises OSError: the file cannot be opened, or is a symbolic link."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    self._file = os.open(path, flags, 0o644)
    self._max_pending_bytes = max_pending_bytes
    self._pending: collections.deque[bytes] = collections.deque()
    self._num_pending_bytes = 0

  def write(self, record: bytes) -> None:
    """Appends a record after all pending ones. Raises OSError: it cannot be written now and is pending."""
    self._pending.append(record)
    self._num_pending_bytes += len(record)
    while self._num_pending_bytes > self._max_pending_bytes and len(self._pending) > 1:
      self._num_pending_bytes -= len(self._pending.popleft())
    self.flush()

  def flush(self) -> None:
    """Writes the pending records. Raises OSError: the disk is still full."""
    while self._pending:
      size, rest = os.fstat(self._file).st_size, memoryview(self._pending[0])
      try:
        while rest:
          rest = rest[os.write(self._file, rest) :]
      except OSError:
        # Removes the partial record, which needs no disk space.
        with contextlib.suppress(OSError):
          os.ftruncate(self._file, size)
        raise
      self._num_pending_bytes -= len(self._pending.popleft())

  def sync(self) -> None:
    """Writes the pending records and calls fsync. Raises OSError: either fails."""
    self.flush()
    os.fsync(self._file)

  def close(self) -> None:
    """Writes the pending records and closes the file. Raises OSError: records are lost; the file is closed.

    A second call does nothing.
    """
    if self._file < 0:
      return
    try:
      self.flush()
    finally:
      os.close(self._file)
      self._file = -1


class SinkGuard:
  """Suppresses OSErrors of sinks, so that a full disk does not end a run; counts them in `num_failures`.

  `report` shows the user a line when a sink starts to fail and when it works again.
  """

  def __init__(self, report: Callable[[str], None]) -> None:
    self._report = report
    self._failing: set[str] = set()
    self.num_failures = 0

  @contextlib.contextmanager
  def writing(self, sink: str, errors: type[Exception] = OSError) -> Iterator[None]:
    """Suppresses and counts an error of the block, which writes to `sink`."""
    try:
      yield
    except errors as error:
      self.num_failures += 1
      if sink in self._failing:
        return
      self._failing.add(sink)
      _log.exception("%s cannot be written", sink)
      reason = " ".join(str(getattr(error, "strerror", None) or error).split())
      self._report(f"{sink} cannot be written: {reason}; the run continues and tries again")
    else:
      if sink in self._failing:
        self._failing.discard(sink)
        _log.info("%s can be written again", sink)
        self._report(f"{sink} can be written again")
