"""The folder of a run, its checkpoints and its metrics."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from moozi.core.config.section import NonNegativeFloat, PositiveFloat, PositiveInt, Section


class RunConfig(Section):
  """The run's name, and the folder of all runs."""

  name: str | None = Field(None, description="folder in run.dir; null: named by environment and time")
  dir: str = Field("runs", description="folder of all runs")

  @property
  def folder(self) -> Path:
    """The folder `dir`; `~` is the user's home."""
    return Path(os.path.expanduser(self.dir))


class CheckpointConfig(Section):
  """The checkpoints to write and to keep, and the one to start from."""

  start_from: str | None = Field(
    None,
    description="start with the training state of a checkpoint's file, of a run's last checkpoint, or of "
    "zoo:NAME, which has parameters only",
  )
  surgery: Literal[False, True, "lossy"] = Field(
    False,
    description="convert the state of start_from to this configuration's network and environment "
    "(docs/surgery.md); true: only if the network's outputs stay the same; lossy: also if they change",
  )
  mapping: str | None = Field(
    None,
    description="surgery: YAML file with the corresponding planes and actions of the two environments; null: "
    "those of the same name or number correspond",
  )

  period_s: PositiveFloat = Field(
    120.0, description="seconds between two regular checkpoints; milestones and the best one are additional"
  )
  first_s: PositiveFloat | None = Field(
    15.0,
    description="seconds from a new run's first environment step after which its first checkpoint is due; "
    "null: period_s applies",
  )
  keep_last: PositiveInt = Field(
    3, description="number of latest checkpoints to keep from which the run can be resumed"
  )
  keep_best: bool = Field(
    True,
    description="keep the checkpoint whose evaluation has the highest lower end of the mean return's 95% "
    "confidence interval",
  )
  milestones_env_steps: PositiveInt | None = Field(
    250_000, description="environment steps between two checkpoints that are always kept; null: none"
  )

  @model_validator(mode="after")
  def _has_start(self) -> "CheckpointConfig":
    if self.surgery and self.start_from is None:
      raise ValueError(f"surgery={self.surgery}: needs start_from, a checkpoint or a run")
    if self.mapping is not None and not self.surgery:
      raise ValueError(f"mapping={self.mapping}: needs surgery=true")
    return self


class LoggingConfig(Section):
  """Metrics, experiment trackers and display."""

  period_s: PositiveFloat = Field(
    5.0,
    description="seconds after which another line (tick) of metrics.jsonl is due; evaluations and "
    "checkpoints write more",
  )
  tensorboard: bool = Field(True, description="also write TensorBoard's files, with histograms and GIFs")
  wandb: bool = Field(
    False,
    description="also log scalars, settings and summary to Weights & Biases, by default offline, in wandb/ "
    "beside the run directory",
  )
  mlflow: bool = Field(
    False,
    description="also log scalars, settings and summary to MLflow, by default in mlflow.db beside the run "
    "directory",
  )
  histogram_period_updates: PositiveInt | None = Field(
    2_000, description="learner steps between two histograms in TensorBoard; null: none"
  )
  parameter_histograms: bool = Field(False, description="also write a histogram of each parameter array")
  progress: Literal["auto", "live", "plain", "none"] = Field(
    "auto",
    description="display on standard error; live: redrawn in place; plain: lines; auto: live on a terminal "
    "that can redraw lines, else plain",
  )

  @property
  def histogram_period(self) -> int | None:
    """Learner steps between two histograms; None without histograms or without TensorBoard."""
    return self.histogram_period_updates if self.tensorboard else None


class TimelineConfig(Section):
  """The recording of each actor's spans, for `moozi timeline`."""

  seconds: NonNegativeFloat = Field(
    60.0, description="seconds recorded, from the first update after the start or a resume; 0: none"
  )
