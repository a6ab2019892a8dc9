"""What happened, told by `run.local` and by the driver in the same words; sinks listen elsewhere."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from moozi.core.actor_report import ActorReport
from moozi.core.histogram import Histogram
from moozi.core.records import TrajectorySample
from moozi.run.state import RunState

# What can go wrong while the run goes on. `faults/<kind>` in an event's metrics is a number of new ones.
FAULTS = (
  "skipped_updates",
  "rollbacks",
  "refused_segments",
  "lost_steps",
  "dropped_steps",
  "lost_updates",
  "env_errors",
  "disk",
  "training_worker",
  "testing_worker",
  "reanalyze_worker",
  "replay_buffer",
  "parameter_server",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
  """Counters at the moment of telling.

  Attributes:
    env_steps: environment steps received so far.
    learner_steps: updates made so far.
  """

  env_steps: int
  learner_steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Started(Event):
  """Everything is built; acting begins."""

  message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acted(Event):
  """A segment arrived; `episode_returns` and `episode_lengths` [E] are those of episodes that ended in it."""

  metrics: dict[str, float]
  episode_returns: np.ndarray
  episode_lengths: np.ndarray
  staleness: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collected(Event):
  """A segment [T, B, …] for whoever keeps it, of lanes first_lane … first_lane+B-1.

  Told only where `trajectories.save` asks for it, each lane's in order, and not of segments that replay did
  not take whole: `follows` is false where one of these lies between it and the lanes' last. Its arrays may
  lie in memory that others wait for: copy what you keep.
  """

  segment: TrajectorySample
  first_lane: int
  follows: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reanalyzed(Event):
  """Stored positions were searched again. `ratio` is their share of them and steps since training began."""

  metrics: dict[str, float]
  num_positions: int
  ratio: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Updated(Event):
  """Updates were made. `num_samples` targets went in; `metrics` are means over the updates."""

  metrics: dict[str, float]
  num_samples: int
  sample_reuse: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorReports(Event):
  """What actors did since the last time, by name; those in the midst of something tell it when it is done."""

  reports: Mapping[str, ActorReport]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histograms(Event):
  """How figures are spread that a mean says too little of, by name."""

  histograms: Mapping[str, Histogram]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated(Event):
  """The testing worker finished. `result` is an `evaluation.EvaluationResult`."""

  result: Any
  is_final: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateReady(Event):
  """A checkpoint is due; `is_best`: of the best evaluation so far (its training state alone)."""

  state: RunState
  is_final: bool = False
  is_best: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faulted(Event):
  """Something went wrong and the run goes on. `counts` are new faults by kind; `message` says what, where."""

  counts: dict[str, int]
  message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished(Event):
  """The run is over. `reason` says why; `sample_reuse` is that of the whole run."""

  reason: str
  sample_reuse: float
