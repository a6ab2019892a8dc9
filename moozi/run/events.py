"""The events of a run, the same for every algorithm and runtime; `training.recorder` writes them to files."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from moozi.core.actor_report import ROLES, ActorReport
from moozi.core.histogram import Histogram
from moozi.core.records import TrajectorySample
from moozi.run.state import RunState

# Kinds of faults that do not end a run. The metric `faults/<kind>` counts them.
FAULTS = (
  "skipped_updates",
  "rollbacks",
  "refused_segments",
  "lost_steps",
  "dropped_steps",
  "repeated_requests",
  "lost_updates",
  "env_errors",
  "disk",
  *ROLES,  # an actor failed and was restarted
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
  """Base class of events, with the counters at the time of the event.

  Attributes:
    env_steps: environment steps received so far.
    learner_steps: updates made so far, including skipped ones, plus the versions that are skipped with Ray
      when the parameters are rolled back or the parameter server is restarted.
  """

  env_steps: int
  learner_steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Started(Event):
  """The parts of the run are built, and acting starts. `message` describes the run for the user."""

  message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acted(Event):
  """A worker finished a segment.

  `episode_returns` and `episode_lengths` [E] are those of `ActingResult`. `staleness` is the present learner
  step minus that of the acting parameters.
  """

  metrics: dict[str, float]
  episode_returns: np.ndarray
  episode_lengths: np.ndarray
  staleness: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collected(Event):
  """A segment [T, B, …] of lanes first_lane … first_lane+B-1, to be written to disk.

  Emitted only with `trajectories.save`, in time order for each lane, and only for segments of which no step
  was lost. `follows` is false if a segment is missing between this segment and the lanes' previous one. The
  arrays may be in shared memory: a consumer that keeps them must copy them.
  """

  segment: TrajectorySample
  first_lane: int
  follows: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reanalyzed(Event):
  """Stored positions were reanalyzed. `ratio` is `Pacer.reanalyze_ratio`."""

  metrics: dict[str, float]
  num_positions: int
  ratio: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Updated(Event):
  """Updates were made. `num_samples` counts a sample each time that an update used it.

  The loss metrics are means over the updates.
  """

  metrics: dict[str, float]
  num_samples: int
  sample_reuse: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorReports(Event):
  """Reports of the actors' calls since the previous report, by actor. Excludes calls in progress."""

  reports: Mapping[str, ActorReport]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histograms(Event):
  """Histograms of network parameters and replay priorities, by name."""

  histograms: Mapping[str, Histogram]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated(Event):
  """An evaluation has finished. `result` is an `evaluation.episodes.EvaluationResult`."""

  result: Any
  is_final: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateReady(Event):
  """A state to save.

  With `is_final`, acting and learning have ended. With `best_bound`, the state has only the training state of
  the best evaluation so far, and `best_bound` is the lower bound of that evaluation's mean return.
  """

  state: RunState
  is_final: bool = False
  best_bound: float | None = None

  @property
  def is_best(self) -> bool:
    return self.best_bound is not None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faulted(Event):
  """A fault that does not end the run. `counts` has the new faults by kind; `message` describes them."""

  counts: dict[str, int]
  message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished(Event):
  """The run has ended. `reason` says why, such as max_env_steps; `sample_reuse` is as in `Trainer`."""

  reason: str
  sample_reuse: float
