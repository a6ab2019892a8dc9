"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
  """Writes a file beside its place, brings it to the disk, and renames it into place.

  A reader sees nothing of it before, a kill leaves at most a hidden file that ends in `.tmp`.
  """
  temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
  try:
    with open(temporary, "wb") as f:
      f.write(data)
      f.flush()
      os.fsync(f.fileno())
    os.replace(temporary, path)
  finally:
    # What a full disk left half-written.
    temporary.unlink(missing_ok=True)
  folder = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(folder)
  finally:
    os.close(folder)
