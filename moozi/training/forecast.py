"""Estimates the environment steps of a run until its time limit, if that ends the run."""

from collections.abc import Callable

from moozi.core.config import Config

_PERIOD_S = 20.0


class Forecast:
  """Gives at most one note per start or resume of a run, when it has learned for at least 20 seconds.

  Args:
    note: receives the text.
  """

  def __init__(self, config: Config, note: Callable[[str], None]) -> None:
    self._note, self._max_steps, self._max_wall_s = note, config.max_env_steps, config.max_wall_s
    self._since: tuple[float, int] | None = None
    self._is_given = False

  def observe(self, env_steps: int, wall_s: float, is_learning: bool) -> None:
    """Reads the counters of a tick; ignores those before the first update."""
    if self._is_given or self._max_wall_s is None or not is_learning:
      return
    if self._since is None:
      self._since = (wall_s, env_steps)
    since_s, since_steps = self._since
    if wall_s - since_s < _PERIOD_S:
      return
    self._is_given = True
    rate = (env_steps - since_steps) / (wall_s - since_s)
    total = env_steps + rate * max(self._max_wall_s - wall_s, 0.0)
    if total < self._max_steps:
      limit = f"max_wall_s={self._max_wall_s:g}"
      self._note(f"at {rate:,.0f} steps/s, the run makes about {total:,.0f} environment steps until {limit}")
