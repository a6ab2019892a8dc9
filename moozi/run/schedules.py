"""Schedules of periodic work, and the reason to end a run. Pure bookkeeping without a clock."""

import math

from moozi.core.config import CheckpointConfig
from moozi.core.flat_state import State


class Every:
  """Due each time a count passes another multiple of `period`; never with period None."""

  def __init__(self, period: float | None, start: float = 0.0) -> None:
    self._period = period
    self._next = None if period is None else (start // period + 1) * period

  def is_due(self, count: float) -> bool:
    """True once for each multiple passed; several multiples passed at once count as one."""
    if self._period is None or self._next is None or count < self._next:
      return False
    self._next = (count // self._period + 1) * self._period
    return True

  def repeat(self) -> None:
    """Makes the work due again now, because it was not done."""
    if self._next is not None:
      self._next = 0.0

  def get_state(self) -> State:
    """The next multiple; -1 if there is none."""
    return {"next": -1.0 if self._next is None else float(self._next)}

  def set_state(self, state: State) -> None:
    """Restores the next multiple, even if the period has changed."""
    if self._next is not None and state["next"] >= 0:
      self._next = float(state["next"])


class CheckpointSchedule:
  """The schedule of checkpoints: after a period in seconds, and at milestones in environment steps.

  A new run's first checkpoint is early: `first_s` after its first environment step.
  """

  def __init__(self, config: CheckpointConfig, wall_s: float = 0.0, env_steps: int = 0) -> None:
    self._seconds = Every(config.period_s, start=wall_s)
    self._milestones = Every(config.milestones_env_steps, start=env_steps)
    self._after_s = math.inf if config.first_s is None else config.first_s
    # When the first checkpoint is due: unknown before the first step, and infinite once it was.
    self._first_s = math.inf if env_steps else None

  def is_due(self, wall_s: float, env_steps: int) -> bool:
    if self._first_s is None and env_steps:
      self._first_s = wall_s + self._after_s
    is_first = self._first_s is not None and wall_s >= self._first_s
    # A list, so that all are called: one checkpoint satisfies all.
    is_due = any([is_first, self._milestones.is_due(env_steps), self._seconds.is_due(wall_s)])
    if is_due and self._first_s is not None:
      self._first_s = math.inf
    return is_due


def reason_to_end(is_complete: bool, is_stopped: bool, wall_s: float, max_wall_s: float | None) -> str | None:
  """Returns `Finished.reason`, or None if the run is not over.

  Args:
    is_complete: whether all environment steps are made and learned from.
    is_stopped: whether a stop was requested; a resumed run then makes the final evaluation.
  """
  if is_stopped:
    return "stopped"
  if is_complete:
    return "max_env_steps"
  return "max_wall_s" if max_wall_s is not None and wall_s >= max_wall_s else None
