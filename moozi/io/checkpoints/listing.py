"""Lists and finds a run's checkpoints."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

from moozi.core.errors import UserError, one_line
from moozi.io.checkpoints.format import PARAMS_ONLY, CheckpointInfo, path_of, read_checkpoint_info
from moozi.io.plain_data import read_json_object
from moozi.io.run_directory import check_name
from moozi.io.state_file import SUFFIX

BEST = "best.json"


def list_checkpoints(directory: Path) -> list[CheckpointInfo]:
  """Returns the checkpoints with a valid header, sorted by environment step. Reads no arrays."""
  return scan_checkpoints(directory)[0]


def list_milestones(directory: Path) -> list[CheckpointInfo]:
  """Returns the milestones of `list_checkpoints`, in the same order."""
  return [info for info in list_checkpoints(directory) if info.meta.get("is_milestone")]


def scan_checkpoints(directory: Path) -> tuple[list[CheckpointInfo], dict[str, str]]:
  """Returns the checkpoints with a valid header, and the error messages of the damaged ones by name.

  Reads no arrays.
  """
  out, damaged = [], {}
  for path in directory.glob(f"[!.]*{SUFFIX}"):
    try:
      out.append(read_checkpoint_info(path))
    except UserError as error:
      damaged[path.name.removesuffix(SUFFIX)] = str(error)
  return sorted(out, key=lambda c: (c.env_steps, c.learner_steps, c.name)), damaged


def find_checkpoint(directory: Path, which: str | None = None) -> CheckpointInfo:
  """Finds one checkpoint of a run.

  Args:
    directory: the run's folder of checkpoints.
    which: None or "last" for the latest; "best" for the best by evaluation; a name; a path; or an environment
      step, for the nearest checkpoint.
  Raises: UserError: there is no such checkpoint, or its file is damaged.
  """
  found = list_checkpoints(directory)
  if which == "best":
    best = read_best(directory)
    if best is not None:
      return read_checkpoint_info(path_of(directory, best.name))
    if found:
      raise UserError(
        f"{directory}: has no best checkpoint; `moozi train` keeps the best from its first "
        "evaluation on, unless checkpoint.keep_best=false"
      )
  elif which and which != "last":
    for path in (path_of(directory, which), path_of(directory, which + PARAMS_ONLY), Path(which)):
      # Unlike Path.is_file, os.path does not raise for a name that is too long.
      if os.path.isfile(path):
        return read_checkpoint_info(path)
  if not found:
    raise UserError(
      f"{directory}: holds no checkpoint; `moozi train` saves one every checkpoint.period_s seconds "
      "and at its end"
    )
  if which is None or which == "last":
    return found[-1]
  if re.fullmatch(r"[0-9]{1,18}", which):
    return min(found, key=lambda c: (abs(c.env_steps - int(which)), -c.learner_steps))
  raise UserError(
    f"checkpoint={one_line(repr(which))}: no such checkpoint; must be last, best, an environment step, or a "
    "name: " + ", ".join(c.name for c in found[-4:])
  )


@dataclasses.dataclass(frozen=True)
class Best:
  """The best checkpoint by evaluation."""

  name: str
  bound: float  # lower bound of its mean return
  evaluation: dict[str, Any]  # settings of its evaluation


def read_best(directory: Path) -> Best | None:
  """Returns the record of the best checkpoint; None if there is no checkpoint or no valid best.json."""
  try:
    best = read_json_object(directory / BEST)
    check_name(best["name"], "checkpoint")
    found = best["name"], best["bound"], best["evaluation"]
  except (OSError, ValueError, KeyError, TypeError, UserError):
    return None
  name, bound, evaluation = found
  if not isinstance(bound, float) or not isinstance(evaluation, dict):
    return None
  names = name, name + PARAMS_ONLY
  return next((Best(name, bound, evaluation) for name in names if path_of(directory, name).is_file()), None)
