"""Which commit the code is of, where it runs from a repository."""

import subprocess
from pathlib import Path

import moozi

_ROOT = Path(moozi.__file__).resolve().parents[1]


def code_commit(folder: Path = _ROOT) -> str | None:
  """The commit of the code, `-dirty` where files differ from it; None: it is in no repository of its own."""
  if not (folder / ".git").exists():  # it may be installed in a folder that lies in another one's repository
    return None
  command = ("git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - git
  except (OSError, subprocess.SubprocessError):
    return None
  return done.stdout.strip() or None
