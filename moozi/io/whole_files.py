"""Files that are there whole or not at all, also after the power failed."""

import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
  """Writes a file beside its place, brings it to the disk, and renames it into place.

  A reader sees nothing of it before, a kill leaves at most a hidden file that ends in `.tmp`.
  """
  temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
  try:
    write_synced(temporary, data)
    os.replace(temporary, path)
  finally:
    # What a full disk left half-written.
    temporary.unlink(missing_ok=True)
  sync_folder(path.parent)


def write_synced(path: Path, data: bytes) -> None:
  """Writes a file in its place, and returns when it is on the disk."""
  with open(path, "wb") as f:
    f.write(data)
    f.flush()
    os.fsync(f.fileno())


def sync_folder(path: Path) -> None:
  """Returns when the folder's names are on the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
