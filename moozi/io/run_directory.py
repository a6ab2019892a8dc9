"""The run directory: where everything that a run leaves behind lies. Other tools rely on its names.

config.yaml      the resolved configuration
metrics.jsonl    one JSON object a tick
tensorboard/     the same scalars as events
checkpoints/     the last few, the best, and milestones
resume/          what the last few need beside themselves for the run to go on
gifs/            episodes of the testing worker
logs/            one file for each actor
trajectories/    every acted step, where trajectories.save asks for it
timeline/        what each actor did when, for a while, and what `moozi timeline` makes of it
summary.json     figures of the whole run, written at its end
lock             held by the process that writes here
"""

import dataclasses
import json
import os
import re
import shutil
import stat
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import RunError, UserError
from moozi.io.atomic_write import write_text
from moozi.io.config import BASE_KEY, config_from_dict, save_config
from moozi.io.plain_json import to_plain_json
from moozi.io.run_lock import RunLock
from moozi.io.yaml_files import MAX_BYTES, read_yaml

SUMMARY_KEYS = (
  "env_steps",
  "learner_steps",
  "reason",
  "wall_s",
  "training_s",
  "env_steps_per_s",
  "learner_samples_per_s",
  "sample_reuse",
  "staleness_mean",
  "test_return_mean",
  "test_return_std",
  "test_episodes",
)
ENDS = ("max_env_steps", "max_wall_s")
"""Why a run is over, in `reason` of its summary, where nothing is left to do."""

MAX_NAME_LENGTH = 120
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]*")
_FOLDERS = ("checkpoints", "gifs", "logs", "tensorboard")


@dataclasses.dataclass(frozen=True)
class RunDirectory:
  """One run's folder. Make one with `create` or `open`."""

  path: Path

  @classmethod
  def create(cls, config: Config, now: datetime | None = None) -> "RunDirectory":
    """Makes a new folder for the run, and saves the configuration in it with the run's name filled in.

    Args:
      config: `run.dir` and `run.name` say where; with no name one is made from the environment and the time.
      now: the time for the made name; None is the clock's.
    Raises: UserError: a name that is no plain folder name, a run that exists, a folder that cannot be made.
    """
    name = config.run.name
    made = _made_name(config.env.name, now or datetime.now())
    candidates = [check_name(name)] if name is not None else [made, *(f"{made}-{i}" for i in range(2, 1000))]
    parent = Path(config.run.dir)
    for candidate in candidates:
      path = parent / candidate
      try:
        parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()  # the making is the test: two runs that start at once cannot both have it
        for folder in _FOLDERS:
          (path / folder).mkdir()
      except FileExistsError:
        if not parent.is_dir():
          raise UserError(f"run.dir={config.run.dir}: is not a folder") from None
        continue
      except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise UserError(f"run.dir={config.run.dir}: the folder {path} cannot be made: {reason}") from None
      run = config.run.model_copy(update={"name": candidate})
      out = cls(path)
      try:
        save_config(config.model_copy(update={"run": run}), out.config_path)
      except OSError as e:
        shutil.rmtree(path, ignore_errors=True)
        raise UserError(
          f"run.dir={config.run.dir}: {out.config_path} cannot be written: {e.strerror}"
        ) from None
      return out
    raise UserError(
      f"run.name={name or made}: {parent / candidates[0]} exists; "
      "a run is never overwritten: choose another name"
    )

  @classmethod
  def open(cls, path: str | Path) -> "RunDirectory":
    """The run in an existing folder.

    Raises: UserError: not a folder, or not one that a run made.
    """
    path = Path(path)
    try:
      if not path.is_dir():
        raise UserError(
          f"{path}: {'is not a folder' if path.exists() else 'no such folder'}; a run directory is needed, "
          "which `moozi train` makes"
        )
      missing = [n for n in ("config.yaml", "checkpoints") if not (path / n).exists()]
    except (OSError, ValueError) as e:
      raise UserError(f"{str(path)!r}: cannot be read: {e}") from None
    if missing:
      lacks = " and no ".join(missing)
      raise UserError(f"{path}: not a run directory: it has no {lacks}; `moozi train` makes run directories")
    return cls(path)

  def claim(self) -> RunLock:
    """Makes this process the one that writes here, until the lock is closed or the process ends.

    Raises: RunError: another process writes here; or something in the folder is a link or no plain file,
      through which writing could reach what is not the run's.
    """
    for folder, subfolders, files in os.walk(self.path, onerror=_refuse_unreadable):
      for name in (*subfolders, *files):
        _refuse_other_places(Path(folder) / name)
    return RunLock(self.path)

  @property
  def name(self) -> str:
    """The folder's own name."""
    return self.path.name

  @property
  def config_path(self) -> Path:
    """config.yaml."""
    return self.path / "config.yaml"

  @property
  def metrics_path(self) -> Path:
    """metrics.jsonl."""
    return self.path / "metrics.jsonl"

  @property
  def summary_path(self) -> Path:
    """summary.json."""
    return self.path / "summary.json"

  @property
  def checkpoints_path(self) -> Path:
    """The folder of checkpoints."""
    return self.path / "checkpoints"

  @property
  def resume_path(self) -> Path:
    """The folder of what a resumed run needs beside a checkpoint."""
    return self.path / "resume"

  @property
  def gifs_path(self) -> Path:
    """The folder of GIFs."""
    return self.path / "gifs"

  @property
  def logs_path(self) -> Path:
    """The folder of logs."""
    return self.path / "logs"

  @property
  def trajectories_path(self) -> Path:
    """The folder of trajectories; there where the run keeps them."""
    return self.path / "trajectories"

  @property
  def timeline_path(self) -> Path:
    """The folder of the timeline; there once something is kept of it."""
    return self.path / "timeline"

  @property
  def tensorboard_path(self) -> Path:
    """The folder of TensorBoard events."""
    return self.path / "tensorboard"

  @property
  def has_begun(self) -> bool:
    """Whether training got so far as to leave a checkpoint or a line of metrics."""
    has_metrics = self.metrics_path.exists() and self.metrics_path.stat().st_size > 0
    return has_metrics or any(self.checkpoints_path.iterdir())

  def log_path(self, actor: str) -> Path:
    """The log file of one actor (`training_worker_0`)."""
    return self.logs_path / f"{check_name(actor, 'actor')}.log"

  def load_config(self) -> Config:
    """The configuration the run was started with.

    Raises: UserError: config.yaml is not a configuration of this version.
    """
    return read_run_config(self.config_path)

  def write_summary(self, summary: Mapping[str, Any]) -> None:
    """Writes summary.json; a number that is not finite becomes null.

    Raises: ValueError: a key of SUMMARY_KEYS is missing.
    """
    missing = [key for key in SUMMARY_KEYS if key not in summary]
    if missing:
      raise ValueError(f"summary: missing {', '.join(missing)}")
    write_text(self.summary_path, json.dumps(to_plain_json(summary), indent=2, allow_nan=False) + "\n")

  def read_summary(self) -> dict[str, Any]:
    """The summary of a run that has ended.

    Raises: UserError: the run has not ended, or summary.json is not JSON.
    """
    try:
      if self.summary_path.exists() and not self.summary_path.is_file():
        raise ValueError("not a file")
      if self.summary_path.stat().st_size > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES:,} bytes")
      summary = json.loads(self.summary_path.read_text("utf-8"))
      if not isinstance(summary, dict):
        raise ValueError("not a JSON object")
      return summary
    except FileNotFoundError:
      raise UserError(f"{self.path}: no summary.json: the run has not come to its end") from None
    except (OSError, ValueError, RecursionError) as e:
      raise UserError(f"{self.summary_path}: cannot be read: {e}") from None

  def trained_s_at_end(self, env_steps: int, learner_steps: int) -> float | None:
    """Seconds that a run trained which came to its own end there.

    Returns: None where it did not: it was stopped or killed before its last evaluation was made (or an
      environment
      had failed in it), it has gone on since, or its summary is none.
    """
    try:
      summary = self.read_summary()
    except UserError:
      return None
    where, seconds = (summary.get("env_steps"), summary.get("learner_steps")), summary.get("training_s")
    is_over = where == (env_steps, learner_steps) and summary.get("reason") in ENDS
    return float(seconds) if is_over and isinstance(seconds, int | float) else None


def read_run_config(path: Path) -> Config:
  """The resolved configuration that a run has saved.

  Raises: UserError: not a configuration of this version.
  """
  data = read_yaml(path)
  # A saved configuration is whole: a `base:` in it would read files that the run did not leave.
  if not isinstance(data, dict) or BASE_KEY in data:
    raise UserError(f"{path}: not a resolved configuration")
  return config_from_dict(data, str(path))


def check_name(name: str, key: str = "run.name") -> str:
  """The name, if it is a plain folder name that stays inside its parent.

  Raises: UserError: empty, too long, or with a separator, a leading dot or dash, or another odd character.
  """
  if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
    raise UserError(
      f"{key}={name!r}: must be a folder name of letters, digits and _ . + = - "
      f"that starts with a letter, digit or _, at most {MAX_NAME_LENGTH} characters"
    )
  return name


def _refuse_unreadable(error: OSError) -> None:
  # Gone meanwhile, where another process writes here: the lock will say so.
  if not isinstance(error, FileNotFoundError):
    raise RunError(f"{error.filename}: cannot be read: {error.strerror}")


def _refuse_other_places(path: Path) -> None:
  """Raises RunError where a path in a run directory is neither a folder nor a plain file."""
  try:
    mode = path.lstat().st_mode
  except FileNotFoundError:
    return
  if stat.S_ISLNK(mode):
    raise RunError(
      f"{path}: a link to {os.readlink(path)!r}; in a run directory nothing is written through links"
    )
  if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
    raise RunError(f"{path}: neither a file nor a folder; a run directory has nothing else")


def _made_name(env_name: str, now: datetime) -> str:
  """`minatar:breakout` in the evening → `minatar-breakout-20261121-193000`."""
  plain = re.sub(r"[^A-Za-z0-9_]+", "-", env_name).strip("-")[: MAX_NAME_LENGTH - 24] or "run"
  return f"{plain}-{now:%Y%m%d-%H%M%S}"
