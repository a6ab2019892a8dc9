"""Jobs of an experiment: a run to its end, and evaluations of its checkpoints; and how far each has come."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io.checkpoints import CheckpointInfo, find_checkpoint, list_checkpoints
from moozi.io.config import config_to_dict, load_config
from moozi.io.run_directory import RunDirectory, flatten_settings

GROWS = ("max_env_steps", "max_wall_s")
"""Settings that a job may change when its run has begun: it goes on for longer."""

EVALUATIONS = "evaluations"
"""The folder in a run where its evaluations wait; they go where it goes."""

# What depends on where and how a run is watched, and changes nothing in it.
_ELSEWHERE = ("run.", "logging.")
# A milestone is a round of steps, or what a driver has in flight, after the step it is for.
_MOST_AFTER = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """Episodes of one checkpoint.

  Attributes:
    checkpoint: an environment step, or `last`.
    episodes: how many.
    simulations: of each search; None is the run's own number.
  """

  checkpoint: str
  episodes: int = 100
  simulations: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """One result to be made.

  Attributes:
    name: of its folder among the results.
    config: the YAML file that its run begins with.
    overrides: `key=value` each.
    seed: of the run.
    evaluations: after the run's end.
    run: its folder among the runs, which jobs may share; None is `name`.
  """

  name: str
  config: Path
  overrides: tuple[str, ...] = ()
  seed: int = 0
  evaluations: tuple[Evaluation, ...] = (Evaluation(checkpoint="last"),)
  run: str | None = None

  @property
  def run_name(self) -> str:
    """Of the run's folder."""
    return self.run or self.name

  def settings(self, folder: Path) -> tuple[str, ...]:
    """All that goes over the file's settings; runs lie in `folder`."""
    return (*self.overrides, f"seed={self.seed}", f"run.dir={folder}", f"run.name={self.run_name}")

  def load_config(self, folder: Path) -> Config:
    """The configuration that its run is to have."""
    return load_config(self.config, self.settings(folder))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
  """How far a job's run has come.

  Attributes:
    env_steps: of the newest state that it can go on from; 0: there is none.
    has_folder: the run's folder is there.
    is_complete: it has made all its steps, or taken all its time, and come to its end.
    grown: settings that the run has otherwise, and goes on with: `key=value` each.
  """

  env_steps: int
  has_folder: bool
  is_complete: bool
  grown: tuple[str, ...] = ()


def progress_of(job: Job, folder: Path) -> Progress:
  """How far the job's run in `folder` has come.

  Raises: UserError: the run was begun with other settings.
  """
  path, wanted = folder / job.run_name, job.load_config(folder)
  if not path.exists():
    return Progress(env_steps=0, has_folder=False, is_complete=False)
  run = RunDirectory.open(path)
  grown = []
  for key in differences(run.load_config(), wanted):
    if key not in GROWS:
      raise UserError(
        f"{path}: was begun with another {key} than the job {job.name} has now; move it away to begin anew"
      )
    grown.append(f"{key}={'null' if (value := getattr(wanted, key)) is None else value}")
  newest = newest_resumable(run)
  if newest is None:
    return Progress(env_steps=0, has_folder=True, is_complete=False, grown=tuple(grown))
  # One that was killed when it had all its steps may lack updates.
  wall_s = run.trained_s_at_end(newest.env_steps, newest.learner_steps)
  return Progress(
    env_steps=newest.env_steps,
    has_folder=True,
    is_complete=wall_s is not None and is_complete(newest.env_steps, wall_s, wanted),
    grown=tuple(grown),
  )


def is_complete(env_steps: int, wall_s: float, wanted: Config) -> bool:
  """Whether a run has made all the steps, or taken all the time, that the configuration gives it."""
  is_timed_out = wanted.max_wall_s is not None and wall_s >= wanted.max_wall_s
  return env_steps >= wanted.max_env_steps or is_timed_out


def differences(there: Config, here: Config) -> list[str]:
  """The keys of settings in which two configurations are not the same, but for where a run lies."""
  before, after = settings_of(there), settings_of(here)
  return [k for k in sorted(before.keys() | after.keys()) if before.get(k) != after.get(k)]


def settings_of(config: Config) -> dict[str, Any]:
  """The settings of a configuration by their dotted keys, but for where a run lies and how it is watched."""
  settings = flatten_settings(config_to_dict(config))
  return {key: value for key, value in settings.items() if not key.startswith(_ELSEWHERE)}


def newest_resumable(run: RunDirectory) -> CheckpointInfo | None:
  """The newest checkpoint that the run can go on from, by its manifests; None: there is none."""
  names = {info.name for info in list_checkpoints(run.resume_path)}
  found = [info for info in list_checkpoints(run.checkpoints_path) if info.name in names]
  return found[-1] if found else None


def may_stand_for(env_steps: int, wanted: int) -> bool:
  """Whether a checkpoint of so many steps may stand for a stated environment step: never one with fewer."""
  return 0 <= env_steps - wanted <= _MOST_AFTER * wanted


def find_checkpoint_of(run: RunDirectory, which: str) -> CheckpointInfo | None:
  """The checkpoint that a figure is from.

  Of an environment step it is the first that may stand for it among the milestones and the run's last. The
  one that is kept for its good evaluation is none of them: it would be chosen by what is to be measured.

  Args:
    run: one that is complete.
    which: an environment step, or what `find_checkpoint` takes.
  Returns: None where no checkpoint may stand for the step.
  Raises: UserError: the run has no checkpoint, or not that one.
  """
  last = find_checkpoint(run.checkpoints_path, "last")
  if not which.isdigit():
    return find_checkpoint(run.checkpoints_path, which)
  for info in list_checkpoints(run.checkpoints_path):
    is_candidate = info.meta.get("is_milestone") or info.name == last.name
    if is_candidate and may_stand_for(info.env_steps, int(which)):
      return info
  return None


def evaluations_of(job: Job, folder: Path) -> dict[Path, tuple[Evaluation, CheckpointInfo]]:
  """The evaluations of a job whose run is complete, each with its checkpoint.

  Returns: by the file where its figures wait until all of the job's are there. One of an environment step
    that no checkpoint may stand for, such as one that the run never came to, is not among them, and of two
    that are the same only the first.
  Raises: UserError: the run has no checkpoint.
  """
  run = RunDirectory.open(folder / job.run_name)
  out: dict[Path, tuple[Evaluation, CheckpointInfo]] = {}
  for evaluation in job.evaluations:
    found = find_checkpoint_of(run, evaluation.checkpoint)
    if found is None:
      continue
    simulations = "own" if evaluation.simulations is None else evaluation.simulations
    name = f"{found.name}_simulations_{simulations}_episodes_{evaluation.episodes}.json"
    out.setdefault(run.path / EVALUATIONS / name, (evaluation, found))
  return out


def read_evaluation(path: Path) -> dict[str, Any] | None:
  """The figures; None: they are not there."""
  return json.loads(path.read_text("utf-8")) if path.exists() else None
