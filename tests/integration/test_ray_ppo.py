"""Tests of PPO with Ray's workers through the command line: learning, killed actors, a stop, a resume."""

import json
import os
import signal

import pytest

from moozi.io.checkpoints import list_checkpoints
from moozi.io.state_file import read_state
from tests.baselines.ppo.test_validation import SETTINGS
from tests.integration.runs import (
  CONFIG,
  ENDLESS,
  faults,
  finish,
  kill,
  popen,
  ticks,
  wait_for,
  wait_for_progress,
  wait_for_start,
)

pytestmark = pytest.mark.slow

RAY = ("runtime=ray", "workers.num_workers=2", "ray.num_cpus=4", "run.name=one")


def start(folder, *overrides):
  return popen("train", CONFIG, *SETTINGS, *RAY, f"run.dir={folder}", *overrides)


def summary_of(run) -> dict:
  return json.loads((run / "summary.json").read_text())


def test_catch_is_learned(tmp_path):
  process, run = start(tmp_path), tmp_path / "one"
  _, err = finish(process, 540)
  assert process.returncode == 0, err
  summary = summary_of(run)
  assert summary["test_return_mean"] >= 0.95
  assert (summary["env_steps"], summary["sample_reuse"]) == (20480, 4.0)
  # A round of 16 × 32 steps has 16 updates.
  assert summary["learner_steps"] == 20480 // 512 * 16
  logs = {p.stem for p in (run / "logs").iterdir()}
  assert logs == {"driver", "parameter_server", "testing_worker", "training_worker_0", "training_worker_1"}
  names = set().union(*ticks(run))
  assert {"test/return_mean", "ppo/clip_fraction", "system/busy_share/training_worker_1"} <= names
  assert not any(name.startswith("replay/") for name in names)


def test_killed_actors_are_replaced_and_the_stopped_run_resumes(tmp_path):
  process, run = start(tmp_path, *ENDLESS, "evaluation.period_env_steps=1000000"), tmp_path / "one"
  wait_for_start(process, run)
  kill(process, "RolloutWorker")
  wait_for(process, lambda: faults(run, "training_worker") == 2, "the faults of both workers")
  wait_for_progress(process, run, "rounds after them")
  # Each worker has at most its own part of the round, 8 × 32 steps, in flight or collected.
  assert ticks(run)[-1]["faults/dropped_steps"] in (0, 256, 512)
  assert ticks(run)[-1].get("faults/lost_steps", 0) == 0
  kill(process, "OnPolicyServer")
  wait_for(process, lambda: faults(run, "parameter_server") == 1, "the fault of the server")
  wait_for_progress(process, run, "rounds after it")
  os.killpg(process.pid, signal.SIGINT)
  _, err = finish(process, 120)
  assert process.returncode == 0, err
  summary = summary_of(run)
  assert summary["reason"] == "stopped"
  # Only whole rounds count; the round that the server did not learn from is among them.
  assert summary["env_steps"] % 512 == 0
  assert summary["faults"]["lost_steps"] in (0, 512)
  newest = list_checkpoints(run / "resume")[-1]
  state = read_state(newest.path, newest.digest)
  assert newest.env_steps == state["progress/env_steps"] == summary["env_steps"]

  steps = summary["env_steps"] + 2048
  resumed = popen("train", "--resume", run, f"max_env_steps={steps}", "evaluation.final_episodes=5")
  _, err = finish(resumed, 240)
  assert resumed.returncode == 0, err
  summary = summary_of(run)
  assert (summary["env_steps"], summary["reason"], summary["test_episodes"]) == (steps, "max_env_steps", 5)
