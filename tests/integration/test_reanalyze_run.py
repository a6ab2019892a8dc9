"""Tests of reanalyze and of saved trajectories with Ray, through the command line."""

import json
import subprocess
import sys

import pytest

from moozi.io.metrics import read_metrics
from moozi.io.trajectory_folder import open_trajectories
from tests.integration.runs import finish, start

pytestmark = pytest.mark.slow

SHARED = ("evaluation.final_episodes=2", "logging.period_s=0.5", "learner.target_update_period=40")


@pytest.fixture(scope="module")
def old(tmp_path_factory):
  """Returns a run with reanalyze workers that saved its trajectories."""
  folder = tmp_path_factory.mktemp("runs")
  process = start(
    folder,
    *SHARED,
    "max_env_steps=3200",
    "trajectories.save=true",
    "reanalyze.ratio=0.8",
    "reanalyze.batch_size=16",
    "reanalyze.num_workers=2",
    "workers.num_workers=2",
  )
  _, err = finish(process, 600)
  assert process.returncode == 0, err
  return folder / "one"


def test_ratio_is_held_and_samples_are_fresh(old):
  ticks = read_metrics(old / "metrics.jsonl")
  ratios = [t["reanalyze/ratio"] for t in ticks if "reanalyze/ratio" in t]
  assert ratios[-1] == pytest.approx(0.8, rel=0.02)
  last = [t for t in ticks if "replay/searched_again_share" in t][-1]
  assert last["replay/searched_again_share"] > 0.3
  assert last["replay/rewritten"] > 0
  logs = {path.stem for path in (old / "logs").iterdir()}
  assert {"reanalyze_worker_0", "reanalyze_worker_1"} <= logs
  assert "JAX loaded: False" in (old / "logs" / "replay_buffer.log").read_text()


def test_every_step_is_saved_in_order(old):
  summary = json.loads((old / "summary.json").read_text())
  store = open_trajectories(old)
  assert store.num_steps == summary["env_steps"]
  assert len(store.lane_steps) == 8
  ended: dict[int, bool] = {}
  for stored in store.read():
    lane, steps = stored.span.lane, stored.steps
    # An episode starts only where the one before has ended, so each lane is in order.
    before = [ended.get(lane, True), *steps.is_last[:-1].tolist()]
    assert steps.is_first.tolist() == before
    ended[lane] = bool(steps.is_last[-1])


def test_learning_from_saved_trajectories(old, tmp_path):
  process = start(
    tmp_path, *SHARED, "max_env_steps=960", f"offline.trajectories={old}", "reanalyze.ratio=0.5"
  )
  _, err = finish(process, 600)
  assert process.returncode == 0, err
  summary = json.loads((tmp_path / "one" / "summary.json").read_text())
  assert summary["learner_steps"] > 0
  ticks = read_metrics(tmp_path / "one" / "metrics.jsonl")
  last = [t for t in ticks if "offline/steps" in t][-1]
  assert last["offline/steps"] == 3200
  assert last["replay/steps"] == 0
  assert not (tmp_path / "one" / "logs" / "training_worker_0.log").exists()


def test_reanalyze_command(old, tmp_path):
  command = [
    sys.executable,
    "-m",
    "moozi.cli",
    "reanalyze",
    str(old),
    "--out",
    str(tmp_path / "new"),
    "--json",
  ]
  result = subprocess.run(command, capture_output=True, text=True, timeout=300)
  assert result.returncode == 0, result.stderr
  figures = json.loads(result.stdout)
  assert figures["steps"] == 3200
  assert open_trajectories(tmp_path / "new").num_steps == 3200
