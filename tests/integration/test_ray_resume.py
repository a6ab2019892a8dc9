"""Tests of runs with Ray that are stopped or killed, and then resumed."""

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.integration.runs import finish, popen, resumable, start, ticks, wait_for


def resume(run: Path, *overrides: str) -> subprocess.Popen:
  """Starts `moozi train --resume`; returns its process."""
  return popen("train", "--resume", run, *overrides)


def assert_curves_are_complete(run: Path) -> None:
  lines = ticks(run)
  for key in ("env_steps", "learner_steps", "wall_s"):
    values = [line[key] for line in lines]
    assert values == sorted(values), key
  evaluations = [line["test/at_env_steps"] for line in lines if "test/at_env_steps" in line]
  assert len(set(evaluations[:-1])) == len(evaluations[:-1])


@pytest.mark.slow
def test_resume_repeats_a_stopped_evaluation(tmp_path):
  process = start(tmp_path, "max_env_steps=320", "evaluation.final_episodes=50000", "logging.period_s=0.2")
  run = tmp_path / "one"
  wait_for(process, lambda: any(info.env_steps == 320 for info in resumable(run)), "the last checkpoint")
  os.killpg(process.pid, signal.SIGTERM)
  _, err = finish(process)
  assert process.returncode == 0, err
  stopped = json.loads((run / "summary.json").read_text())
  assert (stopped["reason"], stopped["env_steps"]) == ("stopped", 320)
  again = resume(run, "evaluation.final_episodes=3")
  _, err = finish(again, 300)
  assert again.returncode == 0, err
  ended = json.loads((run / "summary.json").read_text())
  assert (ended["reason"], ended["test_episodes"], ended["test_at_env_steps"]) == ("max_env_steps", 3, 320)
  assert ended["learner_steps"] == stopped["learner_steps"]


@pytest.mark.slow
def test_driver_killed_and_resumed(tmp_path):
  endless = ["max_env_steps=100000000", "logging.period_s=0.5", "checkpoint.period_s=1"]
  process = start(tmp_path, *endless, "evaluation.period_env_steps=500")
  run = tmp_path / "one"
  wait_for(process, lambda: len(resumable(run)) >= 2, "two checkpoints")
  children = psutil.Process(process.pid).children(recursive=True)
  os.kill(process.pid, signal.SIGKILL)
  finish(process)
  _, alive = psutil.wait_procs(children, timeout=180)
  assert not alive
  newest = resumable(run)[-1]
  seen = ticks(run)[-1]["env_steps"]

  again = resume(run, f"max_env_steps={newest.env_steps + 400}", "evaluation.final_episodes=3")
  _, err = finish(again, 300)
  assert again.returncode == 0, err
  assert f"resuming from {newest.name}" in err
  assert "replay holds" in err
  assert_curves_are_complete(run)
  lines = ticks(run)
  assert lines[-1]["env_steps"] >= newest.env_steps + 400
  after = [line for line in lines if line["env_steps"] > newest.env_steps]
  assert after[0]["env_steps"] - newest.env_steps < max(400, seen), (
    "the run must resume from its newest checkpoint"
  )
  assert after[0]["learner_steps"] >= newest.learner_steps
  assert abs(lines[-1]["train/sample_reuse"] - 16) < 0.8
