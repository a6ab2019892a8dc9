"""Tests of the forecast of a run's environment steps."""

import pytest

from moozi.io.config import load_config
from moozi.training.forecast import Forecast


def notes_of(ticks: list[tuple[int, float, bool]], *overrides: str) -> list[str]:
  notes: list[str] = []
  forecast = Forecast(load_config(None, [*overrides]), notes.append)
  for env_steps, wall_s, is_learning in ticks:
    forecast.observe(env_steps, wall_s, is_learning)
  return notes


def test_a_run_with_a_time_limit_says_once_how_far_it_comes():
  """2,000 steps/s from second 10 on; the steps before are faster and do not count."""
  ticks = [(50_000, 9.0, False), *((60_000 + 2000 * s, 10.0 + s, True) for s in range(60))]
  assert notes_of(ticks, "max_wall_s=270", "max_env_steps=1_000_000") == [
    "at 2,000 steps/s, the run makes about 580,000 environment steps until max_wall_s=270"
  ]


@pytest.mark.parametrize(
  "overrides", [["max_env_steps=1_000_000"], ["max_wall_s=270", "max_env_steps=500_000"]]
)
def test_a_run_that_its_steps_end_says_nothing(overrides):
  assert notes_of([(2000 * s, 10.0 + s, True) for s in range(60)], *overrides) == []
