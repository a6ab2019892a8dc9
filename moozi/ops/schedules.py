"""The temperature of acting and the discount as schedules over environment steps."""

from collections.abc import Sequence

from moozi.core.config import Config, TemperaturePoint
from moozi.core.config.learning import DiscountPoint


def temperature_at(temperature: float | Sequence[TemperaturePoint], env_steps: int) -> float:
  """Returns the acting temperature at `env_steps`: a constant, or that of the latest point that is reached.

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


def discount_at(discount: float, points: Sequence[DiscountPoint], env_steps: int) -> float:
  """Returns γ at `env_steps`: that of the latest point that is reached, or `discount` before the first.

  Args:
    points: their env_steps rise.
  """
  return float(([discount] + [point.discount for point in points if point.env_steps <= env_steps])[-1])


def horizon_at(config: Config, env_steps: int) -> float | None:
  """Returns the horizon 1 / (1 - γ) in steps; None without a schedule of γ, or if γ is 1."""
  section = config.ppo if config.algorithm == "ppo" else config.targets
  discount = discount_at(section.discount, section.discount_schedule, env_steps)
  return 1.0 / (1.0 - discount) if section.discount_schedule and discount < 1 else None
