"""Files that are there whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
  """A place beside `path` to write to; it takes the path in one step, where the block ends without an error.

  The folder is made where it is missing. A link at `path` is replaced and not followed.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(f".{path.name}.{os.getpid()}")
  # What a stranger's folder may have put there would be written through.
  partial.unlink(missing_ok=True)
  try:
    yield partial
    os.replace(partial, path)
  finally:
    partial.unlink(missing_ok=True)
