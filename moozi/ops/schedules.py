"""The temperature of acting as a schedule over environment steps."""

from collections.abc import Sequence

from moozi.core.config import TemperaturePoint


def temperature_at(temperature: float | Sequence[TemperaturePoint], env_steps: int) -> float:
  """Returns the acting temperature at `env_steps`: a constant, or the value of the schedule's latest point.

  Args:
    temperature: `PlannerConfig.temperature`; the env_steps of a schedule start at 0 and rise.
    env_steps: number of environment steps so far, ≥ 0.

  Raises: ValueError: the schedule starts after env_steps.
  """
  if isinstance(temperature, int | float):
    return float(temperature)
  reached = [point.temperature for point in temperature if point.env_steps <= env_steps]
  if not reached:
    raise ValueError(f"temperature: the schedule starts after env_steps={env_steps}; it must start at 0")
  return float(reached[-1])
