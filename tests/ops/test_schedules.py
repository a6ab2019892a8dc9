import pytest

from moozi.core.config import PlannerConfig
from moozi.ops.schedules import temperature_at

SCHEDULE = PlannerConfig(
  algorithm="puct",
  temperature=(
    {"env_steps": 0, "temperature": 1.0},
    {"env_steps": 100, "temperature": 0.5},
    {"env_steps": 200, "temperature": 0.0},
  ),
).temperature


@pytest.mark.parametrize(
  ("env_steps", "expected"), [(0, 1.0), (99, 1.0), (100, 0.5), (199, 0.5), (200, 0.0), (10**9, 0.0)]
)
def test_schedule_is_piecewise_constant(env_steps, expected):
  assert temperature_at(SCHEDULE, env_steps) == expected


def test_number_is_constant():
  assert temperature_at(0.25, 0) == temperature_at(0.25, 10**6) == 0.25


def test_rejects_schedule_that_starts_later():
  with pytest.raises(ValueError, match="temperature"):
    temperature_at(SCHEDULE[1:], 5)
