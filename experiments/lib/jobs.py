"""Jobs of a sweep, and the state of their runs."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.lib.time_budget import ROOT as ROOT
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io.checkpoints import CheckpointInfo, find_checkpoint, list_checkpoints
from moozi.io.config import config_to_dict, load_config
from moozi.io.run_directory import RunDirectory, flatten_settings

GROWABLE = ("max_env_steps", "max_wall_s")
"""Settings that may change after a run has started, to extend it."""

_IGNORED = ("run.", "logging.")  # they do not change a run's results
_MAX_DELAY = 0.05  # a milestone is saved up to one round of collecting after its step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """An evaluation of one checkpoint: an environment step, or `last`.

  Without `simulations`, the search has the run's number of simulations.
  """

  checkpoint: str
  episodes: int = 100
  simulations: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """One training run with its evaluations.

  Attributes:
    name: the name of the result's folder.
    overrides: settings `key=value` that differ from the configuration.
    run: name of the run's folder, if it is shared with another job; None uses `name`.
  """

  name: str
  config: Path
  overrides: tuple[str, ...] = ()
  seed: int = 0
  evaluations: tuple[Evaluation, ...] = (Evaluation(checkpoint="last"),)
  run: str | None = None

  @property
  def run_name(self) -> str:
    return self.run or self.name

  def settings(self, folder: Path) -> tuple[str, ...]:
    return (*self.overrides, f"seed={self.seed}", f"run.dir={folder}", f"run.name={self.run_name}")

  def load_config(self, folder: Path) -> Config:
    return load_config(self.config, self.settings(folder))


def progress_of(job: Job, folder: Path) -> tuple[int, bool]:
  """Returns the environment steps of a job's newest resumable checkpoint, and whether its run is complete.

  A run is complete if it ended by itself after all steps, or all time, of the job's configuration.

  Raises: UserError: the run was started with different settings.
  """
  path, wanted = folder / job.run_name, job.load_config(folder)
  if not (path / "config.yaml").exists():
    return 0, False  # not created, or killed while it was created
  run = RunDirectory.open(path)
  if changed := [key for key in differences(run.load_config(), wanted) if key not in GROWABLE]:
    raise UserError(f"{path}: the run differs from job {job.name} in {', '.join(changed)}; move it away")
  newest = newest_resumable(run)
  if newest is None:
    return 0, False
  wall_s = run.trained_s_at_end(newest.env_steps, newest.learner_steps)
  return newest.env_steps, wall_s is not None and reaches_end(newest.env_steps, wall_s, wanted)


def reaches_end(env_steps: int, wall_s: float, wanted: Config) -> bool:
  """Whether a run has made all steps, or used all seconds, of the configuration."""
  return env_steps >= wanted.max_env_steps or (wanted.max_wall_s is not None and wall_s >= wanted.max_wall_s)


def settings_of(config: Config) -> dict[str, Any]:
  """The settings that results depend on, by their dotted keys."""
  settings = flatten_settings(config_to_dict(config))
  return {key: value for key, value in settings.items() if not key.startswith(_IGNORED)}


def differences(first: Config, second: Config) -> list[str]:
  """The keys of `settings_of` in which two configurations differ."""
  a, b = settings_of(first), settings_of(second)
  return [key for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]


def newest_resumable(run: RunDirectory) -> CheckpointInfo | None:
  """The newest checkpoint that the run can resume from, if any."""
  names = {info.name for info in list_checkpoints(run.resume_path)}
  found = [info for info in list_checkpoints(run.checkpoints_path) if info.name in names]
  return found[-1] if found else None


def matches_step(env_steps: int, wanted: int) -> bool:
  """Whether a checkpoint is at a stated step or up to 5% after it."""
  return 0 <= env_steps - wanted <= _MAX_DELAY * wanted


def find_evaluated(run: RunDirectory, which: str) -> CheckpointInfo | None:
  """The checkpoint of an evaluation.

  For an environment step, returns the first match among the milestones and the last checkpoint, or None. The
  best checkpoint is excluded, because it was selected by the quantity that is measured.

  Raises: UserError: the run has no checkpoint, or not the one that `which` names.
  """
  last = find_checkpoint(run.checkpoints_path, "last")
  if not which.isdigit():
    return find_checkpoint(run.checkpoints_path, which)
  for info in list_checkpoints(run.checkpoints_path):
    is_candidate = info.meta.get("is_milestone") or info.name == last.name
    if is_candidate and matches_step(info.env_steps, int(which)):
      return info
  return None
