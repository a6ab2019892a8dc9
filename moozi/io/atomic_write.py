"""Writes files atomically: a file appears complete or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_path(path: Path, make_parents: bool = True) -> Iterator[Path]:
  """Yields a temporary path beside `path`, which is renamed to `path` when the block ends without an error.

  Replaces a symbolic link at `path` and does not follow it. A killed process leaves at most a hidden file
  named `*.tmp`. Does not call fsync, unlike `write_bytes`. `make_parents` creates missing folders.
  """
  if make_parents:
    path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
  # An untrusted folder may contain a link with this name, and the block would write to its target.
  temporary.unlink(missing_ok=True)
  try:
    yield temporary
    os.replace(temporary, path)
  finally:
    # Frees the space of a partial file on a full disk.
    temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
  """Writes a file atomically; returns when the file and its name are on the disk.

  Raises: OSError: the folder is missing, the disk is full, or the file cannot be written. An older file at
    `path` is then unchanged.
  """
  with atomic_path(path, make_parents=False) as temporary:
    write_synced(temporary, data)
  sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
  """Writes a UTF-8 text file as `write_bytes` does."""
  write_bytes(path, text.encode("utf-8"))


def write_synced(path: Path, data: bytes) -> None:
  """Writes a file in place and returns once it is on the disk."""
  with open(path, "wb") as f:
    f.write(data)
    f.flush()
    os.fsync(f.fileno())


def sync_folder(path: Path) -> None:
  """Calls fsync on a folder, which writes the names in the folder to the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
