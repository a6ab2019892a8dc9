"""Jobs, which describe runs of `moozi train`, and the progress of their runs."""

import dataclasses
from pathlib import Path
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io.checkpoints import list_checkpoints
from moozi.io.config import config_to_dict, load_config
from moozi.io.run_directory import RunDirectory, flatten_settings

GROWABLE = ("max_env_steps", "max_wall_s")
"""Settings that may change after a run has started, to extend it."""

_IGNORED = ("run.", "logging.")  # they do not change a run's results


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """The description of one training run.

  Attributes:
    name: the job's name.
    config: the name or path of the configuration, as `moozi train` accepts it.
    overrides: settings `key=value` that override the configuration.
    seed: the run's seed.
    run: name of the run's folder; None uses `name`.
  """

  name: str
  config: Path | str
  overrides: tuple[str, ...] = ()
  seed: int = 0
  run: str | None = None

  @property
  def run_name(self) -> str:
    return self.run or self.name

  def settings(self, folder: Path) -> tuple[str, ...]:
    return (*self.overrides, f"seed={self.seed}", f"run.dir={folder}", f"run.name={self.run_name}")

  def load_config(self, folder: Path) -> Config:
    return load_config(self.config, self.settings(folder))


def progress_of(job: Job, folder: Path) -> tuple[int, bool]:
  """Returns the environment steps that a job's run has made, and whether the run is complete.

  A run is complete if it ended at the limit of steps or of time in the job's configuration. The steps are
  those of its last checkpoint if it is complete, else those of its newest resumable checkpoint, or 0.

  Raises: UserError: the run was started with different settings.
  """
  path, wanted = folder / job.run_name, job.load_config(folder)
  if not (path / "config.yaml").exists():
    return 0, False  # the run was not created, or was killed during its creation
  run = RunDirectory.open(path)
  if changed := [key for key in differences(run.load_config(), wanted) if key not in GROWABLE]:
    raise UserError(f"{path}: the run differs from job {job.name} in {', '.join(changed)}; move it away")
  checkpoints = list_checkpoints(run.checkpoints_path)
  if checkpoints:
    last = checkpoints[-1]
    wall_s = run.trained_s_at_end(last.env_steps, last.learner_steps)
    if wall_s is not None and reaches_end(last.env_steps, wall_s, wanted):
      return last.env_steps, True
  resumable = {info.name for info in list_checkpoints(run.resume_path)}
  return max((info.env_steps for info in checkpoints if info.name in resumable), default=0), False


def reaches_end(env_steps: int, wall_s: float, wanted: Config) -> bool:
  """Returns whether a run has reached the limit of steps or of time of the configuration `wanted`."""
  return env_steps >= wanted.max_env_steps or (wanted.max_wall_s is not None and wall_s >= wanted.max_wall_s)


def settings_of(config: Config) -> dict[str, Any]:
  """Returns the settings that results depend on, by dotted key."""
  settings = flatten_settings(config_to_dict(config))
  return {key: value for key, value in settings.items() if not key.startswith(_IGNORED)}


def differences(first: Config, second: Config) -> list[str]:
  """Returns the keys of `settings_of` in which two configurations differ, sorted."""
  a, b = settings_of(first), settings_of(second)
  return [key for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]
