"""Which checkpoints of a run are kept: the last few, and milestones at set environment steps."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moozi.core.config import CheckpointConfig
from moozi.io.checkpoints import list_checkpoints, save_checkpoint


class CheckpointStore:
  """Saves a run's checkpoints under names of their environment step, and removes those no longer kept.

  A milestone is the first checkpoint at or after each multiple of `milestones_env_steps`; it stays, so that
  a figure can be reported from the checkpoint nearest a stated step.
  """

  def __init__(self, directory: Path, config: CheckpointConfig) -> None:
    """Takes up what is there, so that a continued run goes on with the same milestones.

    Args:
      directory: the run's folder of checkpoints.
      config: number kept and milestones.
    """
    self._directory = directory
    self._config = config
    self._reached = max((self._milestone(c.env_steps) for c in list_checkpoints(directory)), default=0)

  def save(self, state: Any, meta: Mapping[str, Any], wall_s: float) -> Path:
    """Saves a checkpoint and removes those that are neither among the last few nor milestones.

    Args:
      state: the pytree.
      meta: as `save_checkpoint` takes it; `wall_s` and `is_milestone` are added.
      wall_s: seconds since the run's start.
    Returns: the checkpoint's folder.
    """
    before = list_checkpoints(self._directory)
    name = f"step_{int(meta['env_steps']):09d}"
    milestone = self._milestone(meta["env_steps"])
    if any(c.name == name and c.learner_steps == meta["learner_steps"] for c in before):
      return self._directory / name  # the same state: the last checkpoint of a run often is
    # One of the same step with other updates is replaced; a milestone it was, it stays.
    was_milestone = any(c.name == name and c.meta.get("is_milestone") for c in before)
    is_milestone = milestone > self._reached or was_milestone
    path = save_checkpoint(
      self._directory, name, state, {**meta, "wall_s": wall_s, "is_milestone": is_milestone}
    )
    self._reached = max(self._reached, milestone)
    for info in list_checkpoints(self._directory)[: -self._config.keep_last]:
      if not info.meta.get("is_milestone"):
        shutil.rmtree(info.path, ignore_errors=True)
    return path

  def _milestone(self, env_steps: int) -> int:
    every = self._config.milestones_env_steps
    return int(env_steps) // every if every else 0
