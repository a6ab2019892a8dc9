"""Which checkpoints of a run are kept: the last few, the best, and milestones at set environment steps."""

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moozi.core.config import CheckpointConfig
from moozi.core.flat_state import State
from moozi.io.atomic_write import write_text
from moozi.io.checkpoints import BEST, list_checkpoints, read_best, save_checkpoint
from moozi.io.resume_store import ResumeStore

_NAME = re.compile(r"step_(\d+)(_best)?")


def checkpoint_name(env_steps: int) -> str:
  """The name of a run's checkpoint at an environment step."""
  return f"step_{env_steps:09d}"


def steps_of(name: str) -> int:
  """The environment step in a checkpoint's name; -1 where it has another kind of name."""
  found = _NAME.fullmatch(name)
  return -1 if found is None else int(found[1])


def drop_later(folders: Iterable[Path], env_steps: int) -> None:
  """Removes what a run saved after the checkpoint that it is resumed from: it makes those steps again.

  Damaged ones too: one that stayed would be taken for the last one, and never be written again.

  Args:
    folders: of checkpoints and of resume states.
    env_steps: of the checkpoint that the run goes on from.
  """
  for folder in folders:
    for path in folder.iterdir() if folder.is_dir() else ():
      if steps_of(path.name) > env_steps:
        shutil.rmtree(path, ignore_errors=True)


class CheckpointStore:
  """Saves a run's checkpoints under names of their environment step, and removes those no longer kept.

  A milestone is the first checkpoint at or after each multiple of `milestones_env_steps`; it stays, so that
  a figure can be reported from a stated step, not from the best one near it. The last few also keep what a
  resumed run needs.
  """

  def __init__(self, directory: Path, config: CheckpointConfig, resume: ResumeStore | None = None) -> None:
    """Takes up what is there, so that a continued run goes on with the same milestones.

    Args:
      directory: the run's folder of checkpoints.
      config: number kept and milestones.
      resume: where the rest goes; None where there is no rest.
    """
    self._directory, self._config = directory, config
    self._resume = resume or ResumeStore(directory.parent / "resume")
    self._reached = max((self._milestone(c.env_steps) for c in list_checkpoints(directory)), default=0)

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
    """Saves a checkpoint and removes those that are not kept.

    Args:
      training: the pytree of the training state.
      meta: as `save_checkpoint` takes it; `wall_s` and `is_milestone` are added.
      wall_s: seconds since the run's start.
      rest, generations, blocks: as `ResumeStore.save` takes them; None: no run can be resumed from this one.
      is_best: it is the best one from now on.
    Returns: the checkpoint's folder.
    """
    before = list_checkpoints(self._directory)
    name = checkpoint_name(int(meta["env_steps"]))
    is_there = any(c.name == name and c.learner_steps == meta["learner_steps"] for c in before)
    if rest is None and not is_there and name in self._resume.names():
      # A run can be resumed from the one of that name, with its own number of updates.
      name += "_best"
    # What a resumed run needs comes first: a checkpoint without it is one that nobody resumes from.
    if rest is not None:
      self._resume.save(name, rest, meta, generations, blocks)
    milestone = self._milestone(meta["env_steps"])
    if not is_there:
      # One of the same step with other updates is replaced; a milestone it was, it stays.
      was_milestone = any(c.name == name and c.meta.get("is_milestone") for c in before)
      is_milestone = milestone > self._reached or was_milestone
      save_checkpoint(
        self._directory, name, training, {**meta, "wall_s": wall_s, "is_milestone": is_milestone}
      )
      self._reached = max(self._reached, milestone)
    if is_best and self._config.keep_best:
      write_text(self._directory / BEST, json.dumps({"name": name}) + "\n")
    self._prune()
    return self._directory / name

  def _prune(self) -> None:
    best = read_best(self._directory)
    found = list_checkpoints(self._directory)
    resumable = self._resume.names()
    # The last few, and the last few to resume from: one that was saved for being the best is not among those.
    last = {c.name for c in found[-self._config.keep_last :]}
    last_resumable = {c.name for c in [c for c in found if c.name in resumable][-self._config.keep_last :]}
    for info in found:
      if not (info.name in last | last_resumable | {best} or info.meta.get("is_milestone")):
        shutil.rmtree(info.path, ignore_errors=True)
    self._resume.keep(last_resumable)

  def _milestone(self, env_steps: int) -> int:
    every = self._config.milestones_env_steps
    return int(env_steps) // every if every else 0
