"""Fixture: one run with Ray, shared by many tests."""

from pathlib import Path

import pytest

from tests.integration.runs import faults, finish, kill, kill_started, start, wait_for, wait_for_updates


@pytest.fixture(autouse=True)
def _kill_started():
  yield
  kill_started()


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> tuple[Path, str]:
  """Returns the folder and the output of a short run, during which a training worker was killed."""
  folder = tmp_path_factory.mktemp("runs")
  options = ("evaluation.period_env_steps=400", "logging.period_s=0.3", "timeline.seconds=1e6")
  process, run = start(folder, *options, "max_env_steps=800"), folder / "one"
  wait_for_updates(process, run)
  kill(process, "TrainingWorker")
  wait_for(process, lambda: faults(run, "training_worker") == 1, "fault")
  out, err = finish(process, 400)
  assert process.returncode == 0, err
  return run, out
