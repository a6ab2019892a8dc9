"""The complete state of a run. A checkpoint saves this state, and a run resumes from it."""

import dataclasses
from typing import Any

from moozi.core.flat_state import Snapshot, State


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunState:
  """The state of a run. That of the best evaluation has only `training`.

  Attributes:
    training: the TrainingState as NumPy arrays.
    progress: flat state of counters and schedules; if empty, a new run starts from `training`.
    replay: the replay buffer's content; if None, replay starts empty.
    collectors: one flat state per training worker; empty if they were not saved. A resumed run then resets
      the environments.
  """

  training: Any
  progress: State = dataclasses.field(default_factory=dict)
  replay: Snapshot | None = None
  collectors: tuple[State, ...] = ()

  @property
  def wall_s(self) -> float:
    return float(self.progress.get("wall_s", 0.0))

  @property
  def env_steps(self) -> int:
    """Environment steps so far; 0 if `progress` is empty, because the state then starts a new run."""
    name = "env_steps" if "env_steps" in self.progress else "pacer/env_steps"
    return int(self.progress.get(name, 0))

  @property
  def learner_steps(self) -> int:
    return int(self.training.learner_step)

  @property
  def envs_began_at(self) -> int:
    """Environment steps of the run when the environments were built; part of their seeds."""
    return int(self.progress.get("envs_began_at", 0))
