"""Finds and verifies the trained agents of the zoo, which comes with MooZi. Runs no code from an agent.

An agent is a small run directory under `zoo/NAME/`, and commands that take a run accept it as `zoo:NAME`. Its
files:

config.yaml      the resolved configuration
metrics.jsonl    the run's metrics, with fewer ticks
summary.json     the results of the whole run
checkpoints/     one checkpoint with the parameters only
card.json        the agent's card as data; card.md is the same card as a page
curve.svg        the mean returns of the run's evaluations
play.gif         the beginning of an evaluation episode
files.json       the size and SHA-256 of every other file; of a checkpoint, that of its header
"""

import difflib
import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from moozi.core.errors import UserError, reason_of
from moozi.io.atomic_write import write_text
from moozi.io.bounded_read import read_bounded
from moozi.io.config_files import data_root
from moozi.io.state_file import SUFFIX, read_header

ZOO_PREFIX = "zoo:"
FILES = "files.json"
_FORMAT = 1
_ALLOWED = re.compile(
  r"config\.yaml|metrics\.jsonl|summary\.json|card\.(?:json|md)|curve\.svg|play\.gif"
  r"|checkpoints/step_\d{9,12}\.safetensors"
)
_MAX_FILE_BYTES = 64 << 20


def zoo_root() -> Path:
  """Returns the folder of the agents: inside an installed package, or at the top level of a clone."""
  return data_root("zoo")


def agent_names() -> list[str]:
  """Returns the sorted names of the agents, without reading their files."""
  root = zoo_root()
  return sorted(path.parent.relative_to(root).as_posix() for path in root.rglob(FILES))


def resolve_run(run: str | os.PathLike[str]) -> Path:
  """Returns the run directory for a command's argument RUN: a path, or `zoo:` and the name of an agent.

  The last part of an agent's name suffices if it is unique, such as `zoo:connect_four`. The files of a zoo
  agent are verified, even if it is given by its path.

  Raises: UserError: no agent has the name, or `check_files` refuses the agent.
  """
  text = os.fspath(run)
  path = zoo_root() / _find(text.removeprefix(ZOO_PREFIX)) if text.startswith(ZOO_PREFIX) else Path(text)
  if is_zoo_agent(path):
    check_files(path)
  return path


def is_zoo_agent(path: Path) -> bool:
  """Returns whether the folder has a files.json, as only zoo agents do. Commands never write to these."""
  try:
    return os.path.lexists(path / FILES)
  except ValueError:
    return False


def label_of(path: Path) -> str:
  """Returns `zoo:NAME` for an agent of the zoo, and the path for other folders."""
  root = zoo_root().resolve()
  resolved = path.resolve()
  return ZOO_PREFIX + resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else str(path)


def write_files_list(path: Path) -> None:
  """Writes files.json. Raises UserError if the folder has a file that is not allowed in an agent."""
  names = _names(path) - {FILES}
  files = {name: _facts(path / name) for name in sorted(names)}
  write_text(path / FILES, json.dumps({"format": _FORMAT, "files": files}, indent=1) + "\n")
  check_files(path)


def check_files(path: Path) -> None:
  """Verifies an agent's files; the arrays of a checkpoint are verified when they are read.

  Raises: UserError: a file is missing, altered, a link, not in files.json, or not allowed in an agent.
  """
  listed = _read_list(path / FILES)
  names = _names(path) - {FILES}
  for name in sorted(names | listed.keys()):
    if name not in names:
      raise UserError(f"{path / name}: missing; install MooZi again")
    if name not in listed or _ALLOWED.fullmatch(name) is None:
      raise UserError(f"{path / name}: is not part of a zoo agent; remove it")
    if listed[name] != _facts(path / name):
      raise UserError(f"{path / name}: altered or cut since it was written; install MooZi again")


def size_of(path: Path) -> int:
  """Returns the total size of an agent's files in bytes."""
  return sum((path / name).stat().st_size for name in _names(path))


def _find(name: str) -> str:
  names = agent_names()
  if name in names:
    return name
  same = [known for known in names if known.rpartition("/")[2] == name]
  if len(same) == 1:
    return same[0]
  near = same or difflib.get_close_matches(name, [*names, *(n.rpartition("/")[2] for n in names)], n=3)
  if near:
    hint = f"did you mean {' or '.join(ZOO_PREFIX + n for n in near)}?"
  else:
    hint = f"agents are {', '.join(names)}" if names else f"{zoo_root()} has no agents"
  raise UserError(f"{ZOO_PREFIX}{name}: no such agent; {hint}")


def _names(path: Path) -> set[str]:
  """Returns the relative names of all files in a folder. Raises UserError for links and special files."""
  names = set()
  for folder, subfolders, files in os.walk(path):
    for found in (Path(folder, name) for name in (*subfolders, *files)):
      mode = found.lstat().st_mode
      if stat.S_ISREG(mode) and found.stat().st_size <= _MAX_FILE_BYTES:
        names.add(found.relative_to(path).as_posix())
      elif not stat.S_ISDIR(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "too large or not a file"
        raise UserError(f"{found}: is {kind}, which a zoo agent must not have; remove it")
  return names


def _read_list(path: Path) -> dict[str, Any]:
  try:
    if not stat.S_ISREG(path.lstat().st_mode):
      raise ValueError("not a file")
    data = json.loads(read_bounded(path, _MAX_FILE_BYTES))
    if data["format"] != _FORMAT:
      raise UserError(f"{path}: format {data['format']}; this version of MooZi reads format {_FORMAT}")
    return dict(data["files"])
  except (OSError, ValueError, TypeError, KeyError, RecursionError):
    raise UserError(f"{path}: not a list of a zoo agent's files; install MooZi again") from None


def _facts(path: Path) -> dict[str, Any]:
  if path.name.endswith(SUFFIX):
    # The arrays are verified when they are read.
    header = read_header(path)
    return {"bytes": header.num_bytes, "sha256": header.digest}
  try:
    data = read_bounded(path, _MAX_FILE_BYTES)
  except (OSError, ValueError) as error:
    raise UserError(f"{path}: cannot be read: {reason_of(error)}") from None
  return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
