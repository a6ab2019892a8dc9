"""Jobs, each a run of `moozi train` with evaluations of its checkpoints, and their progress."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io.checkpoints import CheckpointInfo, find_checkpoint, list_checkpoints, list_milestones
from moozi.io.config import config_to_dict, load_config
from moozi.io.run_directory import RunDirectory, flatten_settings

GROWABLE = ("max_env_steps", "max_wall_s")
"""Settings that may change after a run has started, to extend it."""

_IGNORED = ("run.", "logging.")  # they do not change a run's results
_WITHOUT_TIME = {"learner.learning_rate.decay_steps": "budget", "ppo.anneal_by": "steps"}
_MAX_DELAY = 0.05  # as a fraction of the step; a milestone is saved after a round of collecting


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedEvaluation:
  """An evaluation of one checkpoint.

  `checkpoint` is an environment step, a checkpoint's name, `last`, or `-k` for the k-th milestone from the
  end. If `simulations` is None, the search has the run's number of simulations. `opponent` is a player, such
  as `mcts:1000`; None takes the opponent of the run's evaluations.
  """

  checkpoint: str
  episodes: int = 100
  simulations: int | None = None
  opponent: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """One training run with its evaluations.

  Attributes:
    name: the job's name.
    config: the name or path of the configuration, as `moozi train` accepts it.
    overrides: settings `key=value` that override the configuration.
    seed: the run's seed.
    run: name of the run's folder, if another job trains this run; None uses `name`.
    evaluations: the evaluations after training.
    may_differ: prefixes of the settings in which a result may differ from the job.
  """

  name: str
  config: Path | str
  overrides: tuple[str, ...] = ()
  seed: int = 0
  run: str | None = None
  evaluations: tuple[PlannedEvaluation, ...] = ()
  may_differ: tuple[str, ...] = ()

  @property
  def run_name(self) -> str:
    return self.run or self.name

  @property
  def variant(self) -> str:
    """The job's name without its seed."""
    return without_seed(self.name)

  def settings(self, folder: Path) -> tuple[str, ...]:
    return (*self.overrides, f"seed={self.seed}", f"run.dir={folder}", f"run.name={self.run_name}")

  def load_config(self, folder: Path) -> Config:
    return load_config(self.config, self.settings(folder))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
  """Jobs, and how they run.

  Attributes:
    folder: receives the runs, and the output of their commands as `<run>.log`.
    jobs: the jobs, with different names.
    minutes: the time limit of one call; None: no limit.
    parallel: number of jobs to train at a time; None: as many as `cores` allow, else one.
    cores: number of processor cores for each job; the jobs then use no GPU. None divides all cores among the
      parallel jobs.
    results: receives a folder with the results of each finished job; None keeps only the runs.
    columns: the metrics that results keep; None keeps all.
    measures_speed: whether to run `moozi.training.speed` once before the training of a run, and add its
      figures to the result.
    is_exclusive: whether only one sweep at a time may use the folder.
  """

  folder: Path
  jobs: tuple[Job, ...]
  minutes: float | None = None
  parallel: int | None = None
  cores: int | None = None
  results: Path | None = None
  columns: tuple[str, ...] | None = None
  measures_speed: bool = False
  is_exclusive: bool = True

  def job(self, name: str) -> Job:
    """Returns the job with a name."""
    return next(job for job in self.jobs if job.name == name)


def without_seed(name: str) -> str:
  """Returns a run's name without the seed at its end: `first` for `first-seed3`."""
  return re.sub(r"[-_.]?seed[-_=]?\d+$", "", name)


def progress_of(job: Job, folder: Path) -> tuple[int, bool]:
  """Returns the environment steps that a job's run has made, and whether the run is complete.

  A run is complete if it ended at the limit of steps or of time in the job's configuration. The steps are
  those of its last checkpoint if it is complete, else those of its newest resumable checkpoint, or 0.

  Raises: UserError: the run's settings differ from the job's in more than GROWABLE.
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


def matches_step(env_steps: int, wanted: int) -> bool:
  """Returns whether a checkpoint is at a stated step or up to 5% after it."""
  return 0 <= env_steps - wanted <= _MAX_DELAY * wanted


def find_evaluated(run: RunDirectory, which: str) -> CheckpointInfo | None:
  """Returns the checkpoint of an evaluation.

  For an environment step, this is the first match among the milestones and the last checkpoint, or None. A
  checkpoint that was kept only as the best one does not match, because it was selected by the quantity that
  is measured. For `-k`, the result is None if there are fewer milestones.

  Raises: UserError: the run has no checkpoint, or not the one that `which` names.
  """
  if which.startswith("-"):
    milestones = list_milestones(run.checkpoints_path)
    from_end = int(which)
    return milestones[from_end] if len(milestones) >= -from_end else None
  last = find_checkpoint(run.checkpoints_path, "last")
  if not which.isdigit():
    return find_checkpoint(run.checkpoints_path, which)
  for info in list_checkpoints(run.checkpoints_path):
    is_candidate = info.meta.get("is_milestone") or info.name == last.name
    if is_candidate and matches_step(info.env_steps, int(which)):
      return info
  return None


def evaluations_of(job: Job, run: RunDirectory) -> dict[Path, tuple[PlannedEvaluation, CheckpointInfo]]:
  """Returns the evaluations of a job whose run is complete, by the file in the run that stores each.

  Leaves out duplicates, and evaluations for which `find_evaluated` returns None.
  """
  out: dict[Path, tuple[PlannedEvaluation, CheckpointInfo]] = {}
  for evaluation in job.evaluations:
    if (found := find_evaluated(run, evaluation.checkpoint)) is not None:
      simulations = "own" if evaluation.simulations is None else evaluation.simulations
      name = f"{found.name}_simulations_{simulations}_episodes_{evaluation.episodes}"
      if evaluation.opponent is not None:
        name += f"_against_{evaluation.opponent.replace(':', '_')}"
      out.setdefault(run.path / "evaluations" / f"{name}.json", (evaluation, found))
  return out


def settings_of(config: Config) -> dict[str, Any]:
  """Returns the settings that results depend on, by dotted key.

  Without max_wall_s, a schedule by `progress` is that by environment steps, and is returned as such.
  """
  settings = _stated(config)
  if config.max_wall_s is None:
    for key, plain in _WITHOUT_TIME.items():
      settings[key] = plain if settings[key] == "progress" else settings[key]
  return settings


def differences(first: Config, second: Config) -> list[str]:
  """Returns the keys of settings that results depend on in which two configurations differ, sorted.

  A schedule by `progress` equals another one by `progress`, and without max_wall_s also that by steps.
  """
  configs = first, second
  stated, meant = [_stated(config) for config in configs], [settings_of(config) for config in configs]
  keys = sorted(stated[0].keys() | stated[1].keys())
  return [key for key in keys if all(a.get(key) != b.get(key) for a, b in (stated, meant))]


def _stated(config: Config) -> dict[str, Any]:
  settings = flatten_settings(config_to_dict(config))
  return {key: value for key, value in settings.items() if not key.startswith(_IGNORED)}
