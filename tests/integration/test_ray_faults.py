"""Tests of runs with Ray whose actors are killed: the run continues and counts the losses exactly."""

import json
import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from moozi.io.checkpoints import list_checkpoints
from moozi.io.state_file import read_state
from tests.integration.runs import (
  ENDLESS,
  faults,
  finish,
  kill,
  resumable,
  start,
  ticks,
  wait_for,
  wait_for_progress,
  wait_for_start,
  wait_for_updates,
)

pytestmark = pytest.mark.slow


def end(process, run: Path) -> dict:
  os.killpg(process.pid, signal.SIGTERM)
  _, err = finish(process, 120)
  assert process.returncode == 0, err
  lines = ticks(run)
  for key in ("env_steps", "learner_steps", "wall_s"):
    values = [line[key] for line in lines]
    assert values == sorted(values), f"{key} must not decrease"
  # Each environment step is either counted by replay or reported as lost.
  newest = list_checkpoints(run / "resume")[-1]
  summary = json.loads((run / "summary.json").read_text())
  assert newest.env_steps == summary["env_steps"]
  state = read_state(newest.path, newest.digest)
  assert state["progress/pacer/env_steps"] == newest.env_steps
  assert newest.env_steps == state["replay/counter/added"] + summary["faults"]["lost_steps"]
  return lines[-1]


def test_training_worker_killed_twice(tmp_path):
  process, run = start(tmp_path, *ENDLESS), tmp_path / "one"
  wait_for_start(process, run)
  for number in (1, 2):
    kill(process, "TrainingWorker")
    wait_for(process, lambda n=number: faults(run, "training_worker") == n, f"fault {number}")
    wait_for_progress(process, run, "steps after it")
  last = end(process, run)
  # Each of the two kills drops at most the segments in flight: two calls of 4 × 8 steps.
  assert last["faults/dropped_steps"] <= 2 * 2 * 32
  assert last["faults/lost_steps"] == 0
  assert "training_worker_0 failed and was restarted" in (run / "logs" / "driver.log").read_text()


def test_inference_server_killed_twice_and_then_its_workers(tmp_path):
  """The workers ask their requests again, so that the server's faults cost no step; its answers to a worker
  that fails are dropped.
  """
  options = ["acting.mode=server", "workers.num_workers=2", "workers.num_envs=2", "ray.num_cpus=4"]
  process, run = start(tmp_path, *ENDLESS, *options), tmp_path / "one"
  wait_for_start(process, run)
  for number in (1, 2):
    kill(process, "InferenceServer")
    wait_for(process, lambda n=number: faults(run, "inference_server") == n, f"fault {number}")
    wait_for_progress(process, run, "steps after it")
  # Each of the two workers has asked a server that was killed, and reports it with its next segment.
  wait_for(process, lambda: faults(run, "repeated_requests") >= 2, "requests that were asked again")
  assert faults(run, "dropped_steps") == faults(run, "training_worker") == 0
  kill(process, "TrainingWorker")
  wait_for(process, lambda: faults(run, "training_worker") == 2, "faults of workers")
  wait_for_progress(process, run, "steps after them")
  last = end(process, run)
  assert last["faults/lost_steps"] == last["faults/lost_updates"] == 0
  # At most two segments of 2 × 8 steps are in flight at each worker; a stop drops them too.
  assert last["faults/dropped_steps"] <= 2 * 2 * 2 * 16
  assert last["faults/inference_server"] == 2
  assert any(line.get("inference/batch_size", 0) >= 1 for line in ticks(run))
  assert "inference_server_0 failed and was restarted" in (run / "logs" / "driver.log").read_text()


def test_inference_server_that_hangs(tmp_path):
  options = ["acting.mode=server", "workers.num_workers=2", "workers.num_envs=2"]
  options.append("ray.heartbeat_timeout_s=30")
  process, run = start(tmp_path, *ENDLESS, *options), tmp_path / "one"
  wait_for_start(process, run)
  kill(process, "InferenceServer", signal.SIGSTOP)
  wait_for(process, lambda: faults(run, "inference_server") == 1, "the fault")
  # The other worker may have waited for the driver.
  wait_for(process, lambda: faults(run, "repeated_requests") >= 1, "a request that was asked again")
  wait_for_progress(process, run, "steps after it")
  assert faults(run, "dropped_steps") == faults(run, "training_worker") == 0
  last = end(process, run)
  assert last["faults/lost_steps"] == last["faults/lost_updates"] == 0
  assert last["faults/inference_server"] == 1
  assert "inference_server_0 has not answered for 3" in (run / "logs" / "driver.log").read_text()


def test_testing_worker_killed_twice(tmp_path):
  options = ["evaluation.period_env_steps=200", "evaluation.final_episodes=3"]
  process, run = start(tmp_path, *ENDLESS, *options), tmp_path / "one"
  wait_for_start(process, run)
  for number in (1, 2):
    kill(process, "TestingWorker")
    wait_for(process, lambda n=number: faults(run, "testing_worker") == n, f"fault {number}")
    count = sum("test/return_mean" in tick for tick in ticks(run))
    wait_for(process, lambda c=count: sum("test/return_mean" in t for t in ticks(run)) > c, "an evaluation")
  end(process, run)


def test_reanalyze_worker_killed_twice(tmp_path):
  options = ["reanalyze.ratio=0.3", "reanalyze.batch_size=16"]
  process, run = start(tmp_path, *ENDLESS, *options), tmp_path / "one"
  wait_for_start(process, run)

  def searched() -> int:
    return sum("reanalyze/ratio" in tick for tick in ticks(run))

  for number in (1, 2):
    count = searched()
    wait_for(process, lambda c=count: searched() > c, "a search")
    kill(process, "ReanalyzeWorker")
    wait_for(process, lambda n=number: faults(run, "reanalyze_worker") == n, f"fault {number}")
    wait_for_progress(process, run, "steps after it")
  count = searched()
  wait_for(process, lambda: searched() > count, "a search")
  last = end(process, run)
  # A killed reanalyze worker loses only positions in flight, which are not environment steps.
  assert last["faults/lost_steps"] == last["faults/dropped_steps"] == last["faults/lost_updates"] == 0
  assert last["reanalyze/ratio"] == pytest.approx(0.3, abs=0.05)
  assert "reanalyze_worker_0 failed and was restarted" in (run / "logs" / "driver.log").read_text()


def test_replay_buffer_killed(tmp_path):
  # The checkpoint period is long enough for steps that are not yet in a snapshot.
  process, run = start(tmp_path, *ENDLESS, "checkpoint.period_s=15"), tmp_path / "one"
  wait_for_start(process, run)
  wait_for_progress(process, run, "steps that no snapshot has")
  kill(process, "ReplayActor")
  wait_for(process, lambda: faults(run, "replay_buffer") == 1, "the fault")
  wait_for_progress(process, run, "steps after it")
  last = end(process, run)
  log = (run / "logs" / "driver.log").read_text()
  found = re.search(
    r"replay_buffer failed and was restarted from its last snapshot: .*'lost_steps': (\d+)", log
  )
  assert int(found[1]) == last["faults/lost_steps"] > 0


def test_replay_buffer_killed_before_its_first_snapshot(tmp_path):
  process, run = (
    start(tmp_path, *ENDLESS, "checkpoint.period_s=100000", "checkpoint.first_s=null"),
    tmp_path / "one",
  )
  wait_for_updates(process, run)
  kill(process, "ReplayActor")
  wait_for(process, lambda: faults(run, "replay_buffer") == 1, "the fault")
  wait_for_progress(process, run, "steps after it")
  last = end(process, run)
  assert last["faults/lost_steps"] > 0
  assert "there is no snapshot yet" in (run / "logs" / "driver.log").read_text()


def test_parameter_server_killed(tmp_path):
  # With this period, each event has its own line of metrics.
  options = ["logging.period_s=1e-9", "checkpoint.period_s=15", "ray.publish_period_updates=2"]
  process, run = start(tmp_path, *ENDLESS, *options), tmp_path / "one"
  wait_for_start(process, run)
  wait_for_progress(process, run, "updates that no checkpoint has")
  kill(process, "ParameterServer")
  wait_for(process, lambda: faults(run, "parameter_server") == 1, "the fault")
  wait_for_progress(process, run, "updates after it")
  last = end(process, run)
  lines = ticks(run)
  first = next(i for i, line in enumerate(lines) if line["faults/parameter_server"])
  found = re.search(r"from learner step ([\d,]+)", (run / "logs" / "driver.log").read_text())
  lost = lines[first - 1]["learner_steps"] - int(found[1].replace(",", ""))
  assert last["faults/lost_updates"] == lost > 0
  # The learner steps of the parameters that the worker acted with.
  versions = [line["learner_steps"] - line["train/staleness"] for line in lines if "train/staleness" in line]
  assert versions == sorted(versions)
  assert versions[-1] > lines[first - 1]["learner_steps"]


@pytest.mark.parametrize(("name", "kept"), [("gcs_server", "last"), ("raylet", "newest")])
def test_process_of_ray_killed(tmp_path, name, kept):
  """Ray's core would end the driver without a checkpoint, with status 1 and its log on the terminal."""
  settings = () if kept == "newest" else ("checkpoint.period_s=1e6", "checkpoint.first_s=null")
  process, run = start(tmp_path, *ENDLESS, *settings, "logging.progress=none"), tmp_path / "one"
  if kept == "newest":
    wait_for_start(process, run)
  wait_for_updates(process, run)
  children = psutil.Process(process.pid).children(recursive=True)
  made = ticks(run)[-1]["env_steps"]
  begin = time.monotonic()
  (killed,) = (child for child in children if child.name() == name)
  killed.kill()
  out, err = finish(process, 240)
  # A loaded machine needs longer; without the check, the control store's end is noticed after 60 s.
  assert time.monotonic() - begin < 55
  assert process.returncode == 2, err
  assert out == ""
  last = err.splitlines()[-1]
  assert err.count("\n") == 2, "a line of the configuration, and one of the error"
  saved = resumable(run)[-1]
  assert last.startswith("moozi: error: runtime=ray: Ray's ")
  assert f"({name}) ended unexpectedly; the newest checkpoint is {saved.name}; " in last
  assert last.endswith(f"continue with: moozi train --resume {run}")
  if kept == "last":
    assert saved.env_steps >= made > 0, "the actors still answered"
  _, alive = psutil.wait_procs(children, timeout=180)
  assert not alive
