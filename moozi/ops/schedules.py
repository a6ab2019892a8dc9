"""Schedules over environment steps."""

from collections.abc import Sequence

from moozi.core.config import TemperaturePoint


def temperature_at(temperature: float | Sequence[TemperaturePoint], env_steps: int) -> float:
  """The acting temperature at `env_steps`: a number as it is, a schedule's last point that has begun.

  Args:
    temperature: `PlannerConfig.temperature`; a schedule starts at env_steps 0 and rises.
    env_steps: environment steps so far, ≥ 0.

  Raises: ValueError: no point of the schedule has begun.
  """
  if isinstance(temperature, int | float):
    return float(temperature)
  begun = [point.temperature for point in temperature if point.env_steps <= env_steps]
  if not begun:
    raise ValueError(f"temperature: no point of the schedule has begun at env_steps={env_steps}")
  return float(begun[-1])
