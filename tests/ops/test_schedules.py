import pytest

from moozi.core.config import Config, PlannerConfig
from moozi.ops.schedules import discount_at, horizon_at, temperature_at

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


def config_of(**sections):
  points = [{"env_steps": 100, "discount": 0.9}, {"env_steps": 200, "discount": 1}]
  return Config.model_validate({k: v | {"discount_schedule": points} for k, v in sections.items()})


def test_discount_is_that_of_the_latest_point():
  targets = config_of(targets={"discount": 0.5}).targets
  found = [
    discount_at(targets.discount, targets.discount_schedule, steps) for steps in (0, 99, 100, 199, 200)
  ]
  assert found == [0.5, 0.5, 0.9, 0.9, 1.0]
  assert discount_at(0.997, (), 10**6) == 0.997


def test_horizon_is_that_of_the_algorithms_own_discount():
  config = config_of(targets={"discount": 0.5})
  assert [horizon_at(config, steps) for steps in (0, 100, 200)] == pytest.approx([2, 10, None])
  ppo = config_of(ppo={"discount": 0.75}).model_copy(update={"algorithm": "ppo"})
  assert [horizon_at(ppo, steps) for steps in (0, 100)] == pytest.approx([4, 10])
  assert horizon_at(Config(), 0) is None
