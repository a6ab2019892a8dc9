"""Reads files of unknown size, such as those of a downloaded run, in bounded memory."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# A week's metrics have about 300 MiB.
MAX_LOG_BYTES = 1 << 30
MAX_LINE_BYTES = 16 << 20


def open_bounded(path: Path, max_bytes: int) -> BinaryIO:
  """Opens a file of at most `max_bytes` to read.

  Raises: OSError: the file cannot be opened, or is a folder. ValueError: the file is larger, or a pipe or a
    device, whose read may never end.
  """
  # Without O_NONBLOCK, opening a pipe waits for a writer.
  descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
  found = os.fstat(descriptor)
  if stat.S_ISREG(found.st_mode) and found.st_size <= max_bytes:
    return os.fdopen(descriptor, "rb")
  os.close(descriptor)  # fdopen would not close that of a folder
  if stat.S_ISDIR(found.st_mode):
    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
  if not stat.S_ISREG(found.st_mode):
    raise ValueError("not a file")
  raise ValueError(f"{found.st_size:,} bytes; at most {max_bytes:,} are read")


def read_bounded(path: Path, max_bytes: int) -> bytes:
  """Returns a file's content, at most `max_bytes`. Raises OSError and ValueError as `open_bounded`."""
  with open_bounded(path, max_bytes) as file:
    # With a size, read allocates all of it at first.
    return file.read(min(max_bytes, os.fstat(file.fileno()).st_size))


def read_lines(path: Path) -> Iterator[bytes]:
  """Yields the lines of a log with their line ends, and holds one line in memory at a time.

  Raises: OSError: the file cannot be read; ValueError: the file is larger than 1 GiB or not a file, or a line
    has 16 MiB or more.
  """
  with open_bounded(path, MAX_LOG_BYTES) as file:
    while line := file.readline(MAX_LINE_BYTES):
      if len(line) == MAX_LINE_BYTES:
        raise ValueError(f"a line of more than {MAX_LINE_BYTES:,} bytes")
      yield line
