"""Schedules of periodic work, and the reason to end a run. The caller passes the time and the counts."""

import math

from moozi.core.config import CheckpointConfig
from moozi.core.flat_state import State


class Every:
  """A schedule that is due each time a count reaches another multiple of `period`; with None, never."""

  def __init__(self, period: float | None, start: float = 0.0) -> None:
    self._period = period
    self._next = None if period is None else (start // period + 1) * period

  def is_due(self, count: float) -> bool:
    """Returns true if `count` has reached a new multiple since the last call that returned true."""
    if self._period is None or self._next is None or count < self._next:
      return False
    self._next = (count // self._period + 1) * self._period
    return True

  def repeat(self) -> None:
    """Makes the schedule due again at once, because the work was not done."""
    if self._next is not None:
      self._next = 0.0

  def get_state(self) -> State:
    """Returns the next multiple; -1 if there is none."""
    return {"next": -1.0 if self._next is None else float(self._next)}

  def set_state(self, state: State) -> None:
    """Restores the next multiple, unless this schedule's own is earlier, as with a shorter period."""
    if self._next is not None and state["next"] >= 0:
      self._next = min(self._next, float(state["next"]))


class CheckpointSchedule:
  """The schedule of checkpoints: every `period_s` seconds, and at multiples of `milestones_env_steps`.

  With `first_s`, the first checkpoint of a new run is due `first_s` seconds after its first environment step
  at the latest.
  """

  def __init__(self, config: CheckpointConfig, wall_s: float = 0.0, env_steps: int = 0) -> None:
    self._seconds = Every(config.period_s, start=wall_s)
    self._milestones = Every(config.milestones_env_steps, start=env_steps)
    self._after_s = math.inf if config.first_s is None else config.first_s
    # Time of the early first checkpoint: None before the first environment step, infinite after a checkpoint.
    self._first_s = math.inf if env_steps else None

  def is_due(self, wall_s: float, env_steps: int) -> bool:
    if self._first_s is None and env_steps:
      self._first_s = wall_s + self._after_s
    is_first = self._first_s is not None and wall_s >= self._first_s
    # A list, so that every schedule is called and advances: one checkpoint satisfies all of them.
    is_due = any([is_first, self._milestones.is_due(env_steps), self._seconds.is_due(wall_s)])
    if is_due and self._first_s is not None:
      self._first_s = math.inf
    return is_due


def reason_to_end(
  is_complete: bool, is_stopped: bool, wall_s: float, max_wall_s: float | None, is_reached: bool = False
) -> str | None:
  """Returns `Finished.reason`, or None if the run is not over.

  Args:
    is_complete: whether all environment steps are taken, learned from and reanalyzed.
    is_stopped: whether a stop was requested. It has precedence, so that a stopped run skips the final
      evaluation; a resumed run makes it.
    is_reached: whether an evaluation has reached `evaluation.stop_value`.
  """
  if is_stopped:
    return "stopped"
  if is_complete:
    return "max_env_steps"
  if is_reached:
    return "stop_value"
  return "max_wall_s" if max_wall_s is not None and wall_s >= max_wall_s else None
