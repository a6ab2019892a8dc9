"""The run directory, with the files that a run writes. Their names are a public interface.

Compiled functions (`io.compilation_cache`) and the files of Weights & Biases and MLflow (`io.trackers`) are
elsewhere.

config.yaml      the resolved configuration
config_until_*   the configuration until a resume at this environment step changed it
metrics.jsonl    one JSON object per tick
events.out.*     scalars, settings, histograms and GIFs for TensorBoard
checkpoints/     the last few checkpoints, the best one, and milestones
resume/          the rest of the run's state for the last few checkpoints, which a resumed run needs
gifs/            GIFs of evaluation episodes
logs/            the driver's log, and with Ray that of each actor
trajectories/    the acted steps, if trajectories.save is set
timeline/        the spans of the actors' calls, and the output of `moozi timeline`
lineage.json     the runs whose states the run continues (`io.lineage`)
summary.json     results of the whole run, written at its end
trackers.json    the run's identifiers in Weights & Biases and MLflow
lock             locked by the process that writes to the folder
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import RunError, UserError, reason_of
from moozi.io.atomic_write import write_text
from moozi.io.config import config_from_dict, config_to_dict, load_config, save_config
from moozi.io.config_files import BASE_KEY
from moozi.io.plain_data import read_json_object, read_yaml, to_plain_json
from moozi.io.run_lock import RunLock
from moozi.io.zoo_files import is_zoo_agent, label_of, resolve_run

SUMMARY_KEYS = (
  *("env_steps", "learner_steps", "reason", "wall_s", "training_s", "env_steps_per_s"),
  *("learner_samples_per_s", "sample_reuse", "staleness_mean"),
  *("test_return_mean", "test_return_std", "test_episodes"),
)
MACHINE = "machine"
"""Key of the summary that describes the hardware; summaries of some zoo agents lack it."""
RANDOM_RETURN = "random_return_mean"
"""Key of the summary with the mean return of random play; only `moozi train` measures it."""

LINEAGE = "lineage.json"

ENDS = ("max_env_steps", "max_wall_s", "stop_value")
"""Values of `reason` in the summary of a run that is complete."""

FIXED = (
  *("seed", "algorithm", "env", "run", "network", "scalar_transform", "targets.history_length"),
  *("targets.discount_schedule", "learner.optimizer", "learner.max_grad_rms", "learner.learning_rate.kind"),
  *("evaluation.seed", "checkpoint.start_from", "checkpoint.surgery", "checkpoint.mapping"),
  "ppo.max_grad_rms",
  *("ppo.network", "ppo.history_length", "ppo.scale_frames", "ppo.initial_bias", "ppo.num_envs"),
  *("ppo.conv_stride", "ppo.layer_norm", "ppo.value_loss"),
  *("ppo.normalize_observations", "ppo.observation_clip", "ppo.normalize_rewards"),
  *("q_learning.kind", "q_learning.capacity", "q_learning.dueling", "q_learning.network"),
  *("q_learning.normalize_observations", "q_learning.conv_stride"),
)
"""Settings that a resumed run cannot change."""

MAX_NAME_LENGTH = 120
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]*")
_FOLDERS = ("checkpoints", "gifs", "logs")


class _PathInRun:
  """A descriptor that returns a path in the run directory."""

  def __init__(self, name: str) -> None:
    self._name = name

  def __get__(self, run: "RunDirectory", owner: type | None = None) -> Path:
    return run.location / self._name


@dataclasses.dataclass(frozen=True)
class RunDirectory:
  """One run's folder. Create one with `create` or `open`.

  Attributes:
    path: the folder's path.
    descriptor: the folder's open file descriptor; None outside of `held`.
  """

  path: Path
  descriptor: int | None = None

  config_path = _PathInRun("config.yaml")
  metrics_path = _PathInRun("metrics.jsonl")
  summary_path = _PathInRun("summary.json")
  checkpoints_path = _PathInRun("checkpoints")
  resume_path = _PathInRun("resume")
  gifs_path = _PathInRun("gifs")
  logs_path = _PathInRun("logs")
  trajectories_path = _PathInRun("trajectories")
  timeline_path = _PathInRun("timeline")
  trackers_path = _PathInRun("trackers.json")
  lineage_path = _PathInRun(LINEAGE)

  @classmethod
  def create(cls, config: Config, now: datetime | None = None) -> "RunDirectory":
    """Creates the folder `run.dir`/`run.name`, and saves the configuration with its final name there.

    If `run.name` is None, generates a name from the environment and the time `now`, by default the current
    time.

    Raises: UserError: the name is invalid, the run exists, or the folder cannot be created.
    """
    name = config.run.name
    # `minatar:breakout` → `minatar-breakout-20261121-193000`
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", config.env.name).strip("-")[: MAX_NAME_LENGTH - 24] or "run"
    generated = f"{plain}-{now or datetime.now():%Y%m%d-%H%M%S}"
    numbered = [generated, *(f"{generated}-{i}" for i in range(2, 1000))]
    candidates = numbered if name is None else [check_name(name)]
    parent = config.run.folder
    for candidate in candidates:
      path = parent / candidate
      try:
        parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()  # fails if another starting run has just created it
      except FileExistsError:
        if not parent.is_dir():
          raise UserError(f"run.dir={config.run.dir}: is not a folder") from None
        continue
      except (OSError, ValueError) as e:
        what = f"run.dir={config.run.dir}: the folder {path}"
        raise UserError(f"{what} cannot be created: {reason_of(e)}") from None
      out = cls(path)
      named = config.model_copy(update={"run": config.run.model_copy(update={"name": candidate})})
      try:
        for folder in _FOLDERS:
          (path / folder).mkdir()
        save_config(named, out.config_path)
      except BaseException as e:
        shutil.rmtree(path, ignore_errors=True)
        if not isinstance(e, OSError):
          raise
        raise UserError(f"run.dir={config.run.dir}: {path} cannot be written: {reason_of(e)}") from None
      return out
    raise UserError(
      f"run.name={name or generated}: {parent / candidates[0]} exists; a run is never overwritten: choose "
      "another name"
    )

  @classmethod
  def open(cls, path: str | Path) -> "RunDirectory":
    """Returns the run directory at a path, or a zoo agent by `zoo:NAME`. Raises UserError for other paths."""
    path = resolve_run(path)
    try:
      if not path.is_dir():
        raise UserError(
          f"{path}: {'is not a folder' if path.exists() else 'no such folder'}; a run directory is needed, "
          "which `moozi train` makes"
        )
      missing = [n for n in ("config.yaml", "checkpoints") if not (path / n).exists()]
    except (OSError, ValueError) as e:
      raise UserError(f"{str(path)!r}: cannot be read: {reason_of(e)}") from None
    if missing:
      lacks = " and no ".join(missing)
      raise UserError(f"{path}: not a run directory: it has no {lacks}; `moozi train` makes run directories")
    return cls(path)

  def claim(self) -> RunLock:
    """Locks the folder for writing by this process, until the lock is closed or the process ends.

    Raises: RunError: another process has the lock, or the folder contains a symbolic link, a hard link or a
      special file, through which a write could change files outside of the run. UserError: the run is a zoo
      agent.
    """
    if self.is_zoo_agent:
      raise UserError(
        f"{label_of(self.path)}: a zoo agent has parameters only and cannot be resumed; "
        f"checkpoint.start_from={label_of(self.path)} starts a new run with them"
      )
    for folder, subfolders, files in os.walk(self.path, onerror=_refuse_unreadable):
      for path in (Path(folder) / name for name in (*subfolders, *files)):
        with contextlib.suppress(FileNotFoundError):
          found = path.lstat()
          mode = found.st_mode
          if stat.S_ISLNK(mode):
            raise RunError(f"{path}: a link to {os.readlink(path)!r}; a run directory must not contain links")
          if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise RunError(f"{path}: neither a file nor a folder; a run directory must hold nothing else")
          if stat.S_ISREG(mode) and found.st_nlink > 1:
            raise RunError(
              f"{path}: has another name (a hard link), whose content a write would change; make a copy of "
              "the run directory with `cp -r` and use that"
            )
    return RunLock(self.path)

  @contextlib.contextmanager
  def held(self) -> Iterator["RunDirectory"]:
    """Yields this directory with its folder open, so that writes through it reach the folder after a rename.

    On systems other than Linux, which have no paths by descriptor, yields this directory unchanged.

    Raises: RunError: the folder cannot be opened.
    """
    try:
      descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
      raise RunError(f"{self.path}: cannot be opened: {reason_of(error)}") from None
    try:
      yield dataclasses.replace(self, descriptor=descriptor) if _by_descriptor(descriptor).is_dir() else self
    finally:
      os.close(descriptor)

  @property
  def location(self) -> Path:
    """The path by which the folder's files are read and written: that of the descriptor if it is held."""
    return self.path if self.descriptor is None else _by_descriptor(self.descriptor)

  def where(self) -> Path:
    """Returns the folder's present path, which differs from `path` if the folder is held and was moved."""
    if self.descriptor is not None:
      with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(self.descriptor), self.path.stat()):
          return self.path
      now = Path(os.readlink(self.location))
      if now.is_dir():  # false if the folder was removed
        return now
    return self.path

  @property
  def name(self) -> str:
    """Name of the folder."""
    return self.path.name

  @property
  def is_zoo_agent(self) -> bool:
    """Whether the run is an agent of the zoo, which is never written to."""
    return is_zoo_agent(self.path)

  @property
  def output_path(self) -> Path:
    """The folder to which commands write by default: the run's, or the current one for a zoo agent."""
    return Path() if self.is_zoo_agent else self.path

  @property
  def has_begun(self) -> bool:
    """Whether the run has a checkpoint or metrics."""
    has_metrics = self.metrics_path.exists() and self.metrics_path.stat().st_size > 0
    return has_metrics or any(self.checkpoints_path.iterdir())

  def log_path(self, actor: str) -> Path:
    """Returns the path of the log file of one actor, such as `training_worker_0`."""
    return self.logs_path / f"{check_name(actor, 'actor')}.log"

  def load_config(self) -> Config:
    """Returns the run's configuration. Raises UserError if this version of MooZi does not accept it."""
    return read_run_config(self.config_path)

  def write_summary(self, summary: Mapping[str, Any]) -> None:
    """Writes summary.json, with null for numbers that are not finite.

    Raises: ValueError: a key of SUMMARY_KEYS is missing.
    """
    missing = [key for key in SUMMARY_KEYS if key not in summary]
    if missing:
      raise ValueError(f"summary: missing {', '.join(missing)}")
    write_text(self.summary_path, json.dumps(to_plain_json(summary), indent=2, allow_nan=False) + "\n")

  def read_summary(self) -> dict[str, Any]:
    """Returns the summary. Raises UserError if the run has not ended or summary.json is not a JSON object."""
    try:
      return read_json_object(self.summary_path)
    except FileNotFoundError:
      raise UserError(f"{self.path}: no summary.json: the run has not ended") from None
    except (OSError, ValueError) as e:
      raise UserError(f"{self.summary_path}: cannot be read: {reason_of(e)}") from None

  def trained_s_at_end(self, env_steps: int, learner_steps: int) -> float | None:
    """Returns the seconds of training of a complete run, whose summary must have these counters.

    Returns None if the run has no summary or other counters, or if it was stopped before the end of its final
    evaluation. A run whose final evaluation failed is complete; `test_at_env_steps` in its summary is that of
    an earlier evaluation, or null.
    """
    try:
      summary = self.read_summary()
    except UserError:
      return None
    counters, seconds = (summary.get("env_steps"), summary.get("learner_steps")), summary.get("training_s")
    is_over = counters == (env_steps, learner_steps) and summary.get("reason") in ENDS
    return float(seconds) if is_over and isinstance(seconds, int | float) else None


def _by_descriptor(descriptor: int) -> Path:
  return Path(f"/proc/self/fd/{descriptor}")


def read_run_config(path: Path) -> Config:
  """Returns the resolved configuration of a run. Raises UserError if this version does not accept it."""
  data = read_yaml(path)
  # A resolved configuration is complete, so `base:` is refused: it would read files outside of the run.
  if not isinstance(data, dict) or BASE_KEY in data:
    raise UserError(f"{path}: not a resolved configuration")
  return config_from_dict(data, str(path))


def load_resumed_config(run: RunDirectory, overrides: Sequence[str | Mapping[str, Any]]) -> Config:
  """Returns a run's configuration with overrides, which are as in `load_config`.

  Raises: UserError: an override is invalid, or changes a setting in FIXED.
  """
  old, new = run.load_config(), load_config(run.config_path, overrides)
  before, after = flatten_settings(config_to_dict(old)), flatten_settings(config_to_dict(new))
  for key, value in after.items():
    if before.get(key) != value and any(key == fixed or key.startswith(f"{fixed}.") for fixed in FIXED):
      raise UserError(
        f"{key}={value}: a run cannot change it (it began with {before.get(key)}); the fixed settings are "
        + ", ".join(FIXED)
      )
  return new


def save_resumed_config(run: RunDirectory, config: Config, env_steps: int) -> None:
  """Saves a resumed run's configuration if it has changed; `config_until_<env_steps>.yaml` has the old one.

  Raises: RunError: a file cannot be written; the run is unchanged.
  """
  if config_to_dict(config) == config_to_dict(run.load_config()):
    return
  old = run.config_path.with_name(f"config_until_{env_steps:09d}.yaml")
  # An earlier resume from the same step has kept the settings with which the run came to this step.
  is_kept = old.exists()
  try:
    if not is_kept:
      write_text(old, run.config_path.read_text("utf-8"))
    save_config(config, run.config_path)
  except OSError as e:
    if not is_kept:
      old.unlink(missing_ok=True)
    raise RunError(
      f"{run.path}: its settings cannot be written: {reason_of(e)}; nothing has changed"
    ) from None


def flatten_settings(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
  """Returns nested settings as one dict with dotted keys."""
  out: dict[str, Any] = {}
  for name, value in data.items():
    if isinstance(value, Mapping) and value:
      out |= flatten_settings(value, f"{prefix}{name}.")
    else:
      out[prefix + name] = value
  return out


def check_name(name: str, key: str = "run.name") -> str:
  """Returns `name` if it is a valid folder name; `key` is the name of the setting in errors.

  Raises: UserError: the name is empty, too long, or has a separator, a leading dot or dash, or another
    special character.
  """
  if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
    raise UserError(
      f"{key}={name!r}: must be a folder name of letters, digits and _ . + = - "
      f"that starts with a letter, digit or _, at most {MAX_NAME_LENGTH} characters"
    )
  return name


def _refuse_unreadable(error: OSError) -> None:
  # A missing file is not an error: another process may have removed it. If that process still writes here,
  # RunLock raises.
  if not isinstance(error, FileNotFoundError):
    raise RunError(f"{error.filename}: cannot be read: {reason_of(error)}")
