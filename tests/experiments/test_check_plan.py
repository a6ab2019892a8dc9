"""Tests of the comparison of plans with runs."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def check(monkeypatch):
  """Returns the module of the script."""
  monkeypatch.syspath_prepend(ROOT / "scripts")
  return importlib.import_module("scripts.check_plan")


def test_a_plan_is_compared_with_a_run_of_any_configuration(check):
  def cases(*arguments):
    return check.cases_of(check.make_options().parse_intermixed_args(list(arguments)))

  assert cases() == list(check.CASES.items())
  assert cases("--only", "pgx/2048") == [("pgx/2048", ())]
  settings = ("--config", "boards/hex", "seed=1", "runtime=local", "--run-s", "5", "--config", "tiny/catch")
  assert cases(*settings) == [("boards/hex", ["seed=1", "runtime=local"]), ("tiny/catch", [])]
  with pytest.raises(SystemExit):
    cases("--only", "pgx/2048", "--config", "tiny/catch")


def test_a_plan_is_compared_with_the_window_after_learning_has_begun(check):
  ticks = [{"wall_s": 1.0 * n, "env_steps": 1000.0 * n} for n in range(5)]
  assert check.rate_of(ticks, 10.0) is None
  ticks += [{"wall_s": 1.0 * n, "env_steps": 100.0 * n, "train/sample_reuse": 4.0} for n in range(5, 24)]
  assert check.rate_of(ticks, 10.0) is None
  ticks += [{"wall_s": 1.0 * n, "env_steps": 100.0 * n, "train/sample_reuse": 4.0} for n in range(24, 30)]
  assert check.rate_of(ticks, 10.0) == pytest.approx(100)
