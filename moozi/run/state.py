"""All that a run goes on from, in one record: what a checkpoint holds and what a resumed run begins with."""

import dataclasses
from typing import Any

from moozi.core.flat_state import State
from moozi.replay.snapshot import ReplaySnapshot


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunState:
  """A run between two steps of its loop.

  Attributes:
    training: the TrainingState (PPOState with PPO), in NumPy.
    progress: counters and schedules, flat, `wall_s` among them; empty: a new run begins with `training`.
    replay: replay's content; None: it begins empty.
    collectors: one flat state a training worker; empty where their processes keep them to themselves, and
      where new games are to begin.
  """

  training: Any
  progress: State = dataclasses.field(default_factory=dict)
  replay: ReplaySnapshot | None = None
  collectors: tuple[State, ...] = ()

  @property
  def wall_s(self) -> float:
    """Seconds that the run has taken until here, all its pieces together."""
    return float(self.progress.get("wall_s", 0.0))
