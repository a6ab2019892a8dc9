"""Writes files atomically: a reader sees the complete new file or the old one."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_path(path: Path, make_parents: bool = True) -> Iterator[Path]:
  """Yields a temporary path beside `path`, and renames it to `path` if the block ends without an error.

  A symbolic link at `path` is replaced, not followed. A killed process leaves at most a hidden file named
  `*.tmp`. Does not call fsync, unlike `write_bytes`. `make_parents` creates missing folders.
  """
  if make_parents:
    path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
  # An untrusted folder may contain a link with this name. Without this line, the block would write to the
  # link's target.
  temporary.unlink(missing_ok=True)
  try:
    yield temporary
    os.replace(temporary, path)
  finally:
    # After an error such as a full disk, removes the partial file.
    temporary.unlink(missing_ok=True)


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
  """Writes a file atomically, with fsync: on return, the file and its name are on the disk.

  Args:
    parts: the content; joining large parts would copy them.

  Raises: OSError: the folder is missing, the disk is full, or the file cannot be written. If the content
    cannot be written, an older file at `path` is unchanged.
  """
  with atomic_path(path, make_parents=False) as temporary:
    with open(temporary, "wb") as f:
      f.writelines(parts)
      f.flush()
      os.fsync(f.fileno())
  # Without it, a renamed file may not survive a crash.
  folder = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(folder)
  finally:
    os.close(folder)


def write_text(path: Path, text: str) -> None:
  """Writes a UTF-8 text file as `write_bytes` does; characters that UTF-8 cannot encode become `?`."""
  write_bytes(path, text.encode("utf-8", "replace"))


def remove_leftovers(folder: Path) -> None:
  """Removes the partial files of a killed process. No process may be writing to the folder."""
  for path in folder.glob(".*.tmp"):
    path.unlink()
