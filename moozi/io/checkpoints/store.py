"""Saves a run's checkpoints; keeps the last few, the best one, and milestones."""

import contextlib
import json
import os
import re
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from moozi.core.config import CheckpointConfig
from moozi.core.flat_state import Snapshot
from moozi.io.atomic_write import write_bytes, write_text
from moozi.io.checkpoints.format import PARAMS_ONLY, path_of, save_checkpoint
from moozi.io.checkpoints.listing import BEST, Best, list_checkpoints, read_best
from moozi.io.checkpoints.resume_store import ResumeStore
from moozi.io.state_file import SUFFIX

_NAME = re.compile(r"step_(\d+)(_best|_params)?")


def checkpoint_name(env_steps: int) -> str:
  """Returns the name of a run's checkpoint at an environment step."""
  return f"step_{env_steps:09d}"


def steps_of(name: str) -> int:
  """Returns the environment step in a checkpoint's name; -1 for other names."""
  found = _NAME.fullmatch(name)
  return -1 if found is None else int(found[1])


def drop_later(folders: Iterable[Path], env_steps: int) -> None:
  """Removes checkpoints and resume states later than `env_steps`, the step from which a run is resumed.

  Later files that are damaged are removed too.
  """
  for folder in folders:
    for path in folder.glob(f"*{SUFFIX}"):
      if steps_of(path.name.removesuffix(SUFFIX)) > env_steps:
        with contextlib.suppress(OSError):
          path.unlink()


class CheckpointStore:
  """Saves a run's checkpoints, named by environment step, and removes those that are no longer kept.

  A milestone is the first checkpoint at or after each multiple of `milestones_env_steps`. Saves never remove
  milestones, so that results at these steps can be computed later.

  The last few checkpoints have a resume state, from which the run can be resumed. The names of the other
  checkpoints end in `_best` (saved because of an evaluation) or `_params` (all others).
  """

  def __init__(
    self,
    directory: Path,
    config: CheckpointConfig,
    resume: ResumeStore | None = None,
    evaluation: Mapping[str, Any] = types.MappingProxyType({}),
  ) -> None:
    """Opens the folder, and reads its milestones.

    Args:
      resume: where resume states are saved; by default a store in the folder `resume/` beside `directory`.
      evaluation: settings of the run's evaluations, which best.json records.
    """
    self._directory, self._config, self._evaluation = directory, config, evaluation
    self._resume = resume or ResumeStore(directory.parent / "resume")
    self._last_milestone = max((self._milestone(c.env_steps) for c in list_checkpoints(directory)), default=0)

  def save(
    self,
    training: Any,
    meta: Mapping[str, Any],
    wall_s: float,
    rest: Snapshot | None = None,
    best_bound: float | None = None,
  ) -> Path:
    """Saves a checkpoint, removes those that are no longer kept, and returns the path of the checkpoint.

    Args:
      training: the pytree of the training state.
      meta: as in `save_checkpoint`; this method adds `wall_s` and `is_milestone`.
      wall_s: seconds of the run so far, with those before a resume.
      rest: the resume state; None saves a checkpoint from which the run cannot be resumed.
      best_bound: lower bound of the mean return if the checkpoint is the best by evaluation; best.json then
        records both.
    """
    before = list_checkpoints(self._directory)
    name = checkpoint_name(int(meta["env_steps"]))
    exists = any(c.name == name and c.learner_steps == meta["learner_steps"] for c in before)
    if rest is None and not exists:
      name += "_best" if best_bound is not None else PARAMS_ONLY
    # Saves the resume state first, so that a kill never leaves a checkpoint without its resume state.
    if rest is not None:
      self._resume.save(name, rest, meta)
    if not exists:
      best = read_best(self._directory)
      if best is not None and best.name == name and best_bound is None:
        self._keep_best(best)
        before = [c for c in before if c.name != name]  # the copy is the milestone, if it was one
      milestone = self._milestone(meta["env_steps"])
      # A checkpoint that replaces a milestone at the same environment step is a milestone too.
      was_milestone = any(c.name == name and c.meta.get("is_milestone") for c in before)
      is_milestone = milestone > self._last_milestone or was_milestone
      meta = {**meta, "wall_s": wall_s, "is_milestone": is_milestone}
      save_checkpoint(self._directory, name, training, meta)
      self._last_milestone = max(self._last_milestone, milestone)
    if best_bound is not None:
      self._write_best(name, best_bound, self._evaluation)
    self._prune()
    return path_of(self._directory, name)

  def _keep_best(self, best: Best) -> None:
    """Copies the best checkpoint, because later parameters are about to take its name."""
    kept = f"{best.name}_best"
    if path_of(self._directory, kept).exists():
      # It is an earlier best of the same environment step, and may be a milestone.
      (self._directory / BEST).unlink()
      return
    write_bytes(path_of(self._directory, kept), path_of(self._directory, best.name).read_bytes())
    self._write_best(kept, best.bound, best.evaluation)

  def _write_best(self, name: str, bound: float, evaluation: Mapping[str, Any]) -> None:
    best = {"name": name, "bound": bound, "evaluation": dict(evaluation)}
    write_text(self._directory / BEST, json.dumps(best) + "\n")

  def _prune(self) -> None:
    found, resumable = list_checkpoints(self._directory), self._resume.names()
    last = {c.name for c in found[-self._config.keep_last :]}
    # Checkpoints without a resume state, such as those saved as the best, do not count here.
    last_resumable = {c.name for c in [c for c in found if c.name in resumable][-self._config.keep_last :]}
    best = read_best(self._directory)
    kept = last | last_resumable | ({best.name} if best else set())
    for info in found:
      if info.name not in kept and not info.meta.get("is_milestone"):
        info.path.unlink(missing_ok=True)
      elif info.name == checkpoint_name(info.env_steps) and info.name not in last_resumable:
        # `read_best` and `find_checkpoint` also try the new name.
        os.replace(info.path, path_of(self._directory, info.name + PARAMS_ONLY))
    self._resume.keep(last_resumable)

  def _milestone(self, env_steps: int) -> int:
    every = self._config.milestones_env_steps
    return int(env_steps) // every if every else 0
