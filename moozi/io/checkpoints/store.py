"""Saves a run's checkpoints; keeps the last few, the best, and milestones at set environment steps."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moozi.core.config import CheckpointConfig
from moozi.core.flat_state import State
from moozi.io.atomic_write import write_text
from moozi.io.checkpoints.format import save_checkpoint
from moozi.io.checkpoints.listing import BEST, PARAMS_ONLY, list_checkpoints, read_best
from moozi.io.checkpoints.resume_store import ResumeStore

_NAME = re.compile(r"step_(\d+)(_best|_params)?")


def checkpoint_name(env_steps: int) -> str:
  """The name of a run's checkpoint at an environment step."""
  return f"step_{env_steps:09d}"


def steps_of(name: str) -> int:
  """The environment step in a checkpoint's name; -1 for other names."""
  found = _NAME.fullmatch(name)
  return -1 if found is None else int(found[1])


def drop_later(folders: Iterable[Path], env_steps: int) -> None:
  """Removes checkpoints and resume states later than `env_steps`, the step from which a run is resumed.

  Removes damaged checkpoints too. Otherwise, a damaged checkpoint would be the last one by name, and no save
  would replace it.
  """
  for folder in folders:
    for path in folder.iterdir() if folder.is_dir() else ():
      if steps_of(path.name) > env_steps:
        shutil.rmtree(path, ignore_errors=True)


class CheckpointStore:
  """Saves a run's checkpoints, named by environment step, and removes those that are no longer kept.

  A milestone is the first checkpoint at or after each multiple of `milestones_env_steps`. Milestones are
  never removed, so that a result can be reported at a stated step.

  A run can be resumed from the last few checkpoints, which also have a resume state. The names of the others
  end in `_best` (saved for its evaluation) or `_params` (its resume state has been removed).
  """

  def __init__(self, directory: Path, config: CheckpointConfig, resume: ResumeStore | None = None) -> None:
    """Continues with the folder's milestones.

    Resume states are saved to `resume`; if it is None, to the folder `resume/` beside `directory`.
    """
    self._directory, self._config = directory, config
    self._resume = resume or ResumeStore(directory.parent / "resume")
    self._last_milestone = max((self._milestone(c.env_steps) for c in list_checkpoints(directory)), default=0)

  def save(
    self,
    training: Any,
    meta: Mapping[str, Any],
    wall_s: float,
    rest: State | None = None,
    generations: np.ndarray | None = None,
    blocks: Mapping[int, State] | None = None,
    is_best: bool = False,
  ) -> Path:
    """Saves a checkpoint, removes those that are no longer kept, and returns the checkpoint's folder.

    Args:
      training: the pytree of the training state.
      meta: as in `save_checkpoint`; `wall_s` and `is_milestone` are added.
      wall_s: seconds since the run's start.
      rest: the resume state; None saves a checkpoint that no run can resume from.
      generations, blocks: as in `ResumeStore.save`.
      is_best: true marks the checkpoint as the best.
    """
    before = list_checkpoints(self._directory)
    name = checkpoint_name(int(meta["env_steps"]))
    exists = any(c.name == name and c.learner_steps == meta["learner_steps"] for c in before)
    if rest is None and not exists:
      name += "_best" if is_best else PARAMS_ONLY
    # Saves the resume state first, because a run cannot resume from a checkpoint without a resume state.
    if rest is not None:
      self._resume.save(name, rest, meta, generations, blocks)
    if not exists:
      milestone = self._milestone(meta["env_steps"])
      # A checkpoint that replaces a milestone of the same step is a milestone too.
      was_milestone = any(c.name == name and c.meta.get("is_milestone") for c in before)
      is_milestone = milestone > self._last_milestone or was_milestone
      meta = {**meta, "wall_s": wall_s, "is_milestone": is_milestone}
      save_checkpoint(self._directory, name, training, meta)
      self._last_milestone = max(self._last_milestone, milestone)
    if is_best and self._config.keep_best:
      write_text(self._directory / BEST, json.dumps({"name": name}) + "\n")
    self._prune()
    return self._directory / name

  def _prune(self) -> None:
    found, resumable = list_checkpoints(self._directory), self._resume.names()
    last = {c.name for c in found[-self._config.keep_last :]}
    # A checkpoint that was saved as the best has no resume state, so it does not count here.
    last_resumable = {c.name for c in [c for c in found if c.name in resumable][-self._config.keep_last :]}
    kept = last | last_resumable | {read_best(self._directory)}
    for info in found:
      if info.name not in kept and not info.meta.get("is_milestone"):
        shutil.rmtree(info.path, ignore_errors=True)
      elif info.name == checkpoint_name(info.env_steps) and info.name not in last_resumable:
        # `read_best` and `find_checkpoint` also look under the new name.
        os.replace(info.path, info.path.with_name(info.name + PARAMS_ONLY))
    self._resume.keep(last_resumable)

  def _milestone(self, env_steps: int) -> int:
    every = self._config.milestones_env_steps
    return int(env_steps) // every if every else 0
