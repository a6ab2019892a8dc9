"""Which commit the code is of, where it runs from a repository."""

import re
from pathlib import Path

import moozi

_HASH = re.compile(r"[0-9a-f]{40,64}")


def code_commit(root: Path | None = None) -> str | None:
  """The commit that a repository is at, by its files; changes since are not looked at. None: there is none.

  Args:
    root: the repository's folder; None is the one that this package lies in.
  """
  git = (root or Path(moozi.__file__).resolve().parents[1]) / ".git"
  try:
    if git.is_file():  # a worktree: its own head, and the names of all
      git = git.parent / git.read_text("utf-8").partition("gitdir:")[2].strip()
    text = (git / "HEAD").read_text("utf-8").strip()
    common = git / "commondir"
    shared = git / common.read_text("utf-8").strip() if common.is_file() else git
    if text.startswith("ref: "):
      text = _commit_of(text.removeprefix("ref: "), shared)
  except (OSError, ValueError):
    return None
  return text if _HASH.fullmatch(text) else None


def _commit_of(name: str, git: Path) -> str:
  if (git / name).is_file():
    return (git / name).read_text("utf-8").strip()
  lines = (git / "packed-refs").read_text("utf-8").splitlines()
  return next((line.partition(" ")[0] for line in lines if line.endswith(f" {name}")), "")
