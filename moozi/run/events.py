"""The events of a run, the same for every algorithm and runtime; `training.recorder` writes them to files."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from moozi.core.actor_report import ActorReport
from moozi.core.histogram import Histogram
from moozi.core.records import TrajectorySample
from moozi.run.state import RunState

# Faults that do not end a run. The metric `faults/<kind>` of an event counts the new faults.
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
  """The counters at the time of the event.

  Attributes:
    env_steps: environment steps received so far.
    learner_steps: updates made so far.
  """

  env_steps: int
  learner_steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Started(Event):
  """Everything is built, and acting starts."""

  message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acted(Event):
  """A segment was acted. `episode_returns` and `episode_lengths` [E] have an entry per completed episode."""

  metrics: dict[str, float]
  episode_returns: np.ndarray
  episode_lengths: np.ndarray
  staleness: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collected(Event):
  """A segment [T, B, …] of lanes first_lane … first_lane+B-1, to be written to disk.

  Emitted only with `trajectories.save`, for each lane in order, and only for segments that replay stored
  whole. `follows` is false if a segment is missing between this segment and the lanes' previous segment. The
  arrays may be in shared memory, so copy arrays that you keep.
  """

  segment: TrajectorySample
  first_lane: int
  follows: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reanalyzed(Event):
  """Stored positions were reanalyzed. `ratio` is reanalyzed / (reanalyzed + acted) since training started."""

  metrics: dict[str, float]
  num_positions: int
  ratio: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Updated(Event):
  """Updates were made from `num_samples` targets; `metrics` are means over the updates."""

  metrics: dict[str, float]
  num_samples: int
  sample_reuse: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorReports(Event):
  """The actors' work since the last report, by name. Calls in progress are in the next report."""

  reports: Mapping[str, ActorReport]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histograms(Event):
  """Histograms by name."""

  histograms: Mapping[str, Histogram]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated(Event):
  """An evaluation is done. `result` is an `evaluation.EvaluationResult`."""

  result: Any
  is_final: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateReady(Event):
  """A state to save. With `is_best`, it has only the training state of the best evaluation so far."""

  state: RunState
  is_final: bool = False
  is_best: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faulted(Event):
  """A fault that does not end the run. `counts` has new faults by kind; `message` describes the fault."""

  counts: dict[str, int]
  message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished(Event):
  """The run is over for `reason`; `sample_reuse` covers the whole run."""

  reason: str
  sample_reuse: float
