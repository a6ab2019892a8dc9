"""What is due when in a run, and why it ends. Pure bookkeeping without clocks of its own."""

from moozi.core.config import CheckpointConfig
from moozi.core.flat_state import State


class Every:
  """Says when a count has passed another multiple of `period`; a null period never comes."""

  def __init__(self, period: float | None, start: float = 0.0) -> None:
    self._period = period
    self._next = None if period is None else (start // period + 1) * period

  def is_due(self, count: float) -> bool:
    """True once for each multiple passed (several passed at once count as one)."""
    if self._period is None or self._next is None or count < self._next:
      return False
    self._next = (count // self._period + 1) * self._period
    return True

  def repeat(self) -> None:
    """What was due last has not been done: it is due again at once."""
    if self._next is not None:
      self._next = 0.0

  def get_state(self) -> State:
    """When it is due next; -1: never."""
    return {"next": -1.0 if self._next is None else float(self._next)}

  def set_state(self, state: State) -> None:
    """Goes on from there; where the period has changed since, the state's time counts once more."""
    if self._next is not None and state["next"] >= 0:
      self._next = float(state["next"])


class CheckpointSchedule:
  """When a checkpoint is due: every so many seconds, and at milestones in environment steps."""

  def __init__(self, config: CheckpointConfig, wall_s: float = 0.0, env_steps: int = 0) -> None:
    self._seconds = Every(config.period_s, start=wall_s)
    self._milestones = Every(config.milestones_env_steps, start=env_steps)

  def is_due(self, wall_s: float, env_steps: int) -> bool:
    """Whether a checkpoint is due now."""
    # Both are asked: a multiple passed while the other was due counts as served.
    return any([self._milestones.is_due(env_steps), self._seconds.is_due(wall_s)])


def reason_to_end(is_complete: bool, is_stopped: bool, wall_s: float, max_wall_s: float | None) -> str | None:
  """Why a run is over, if it is: `Finished.reason`.

  Args:
    is_complete: all that it was to learn from is learned.
    is_stopped: it was told to end, and evaluates nothing more; a resumed run does.
    wall_s: seconds since its start.
    max_wall_s: when it ends at the latest.
  """
  if is_stopped:
    return "stopped"
  if is_complete:
    return "max_env_steps"
  return "max_wall_s" if max_wall_s is not None and wall_s >= max_wall_s else None
