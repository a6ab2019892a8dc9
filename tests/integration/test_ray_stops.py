"""Tests of runs with Ray that are stopped, stalled, on a full disk, or have updates that are not finite."""

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from moozi.envs.registry import env_spec
from moozi.io.checkpoints import expected_of, list_checkpoints, load_checkpoint
from moozi.io.run_directory import RunDirectory
from moozi.run.pacing import slack_steps
from moozi.training.algorithms import algorithm_of
from tests.integration.runs import (
  ENDLESS,
  ROOT,
  actors,
  faults,
  finish,
  resumable,
  start,
  steps,
  suspended_children,
  ticks,
  wait_for,
  wait_for_progress,
  wait_for_start,
)
from tests.integration.test_faults import FAULTY, assert_one_line
from tests.integration.test_ray_faults import end
from tests.integration.test_ray_resume import resume
from tests.io.test_full_disk import SmallDisk

pytestmark = pytest.mark.slow


def test_hanging_environments_do_not_delay_the_last_checkpoint(tmp_path):
  """Each environment hangs in its second episode; a checkpoint that waited for it would take an hour."""
  options = ["env.kwargs.how=hang", "evaluation.period_env_steps=1000000", "logging.period_s=1e-9"]
  process = start(
    tmp_path,
    FAULTY,
    *options,
    "workers.env_timeout_s=3600",
    "max_env_steps=1000000",
    "checkpoint.period_s=1e6",
    "checkpoint.first_s=null",
    cwd=ROOT,
  )
  run = tmp_path / "one"
  wait_for(process, lambda: bool(ticks(run)) and steps(run)[0] == 32, "the first segment")
  os.killpg(process.pid, signal.SIGTERM)
  _, err = finish(process)
  assert process.returncode == 0, err
  assert json.loads((run / "summary.json").read_text())["reason"] == "stopped"
  (checkpoint,) = list_checkpoints(run / "checkpoints")
  assert checkpoint.env_steps == 32
  assert ticks(run)[-1]["faults/dropped_steps"] > 0


@pytest.mark.parametrize("phase", ["starting Ray", "compiling the update"])
def test_signal_is_acknowledged_before_a_phase_of_the_start_ends(tmp_path, phase):
  """Ray's processes and the actors are suspended meanwhile, so that the phase cannot end."""
  process = start(tmp_path, *ENDLESS, "logging.progress=plain")
  while not process.stderr.readline().endswith(f"  {phase}\n"):
    assert process.poll() is None
  with suspended_children(process):
    hang_limit = threading.Timer(240, process.kill)
    hang_limit.start()
    process.send_signal(signal.SIGINT)
    while process.stderr.readline() != "moozi: SIGINT received; stopping\n":
      assert process.poll() is None
    hang_limit.cancel()
  _, err = finish(process)
  assert process.returncode == 0, err
  summary = json.loads((tmp_path / "one" / "summary.json").read_text())
  assert summary["reason"] == "stopped"
  assert list_checkpoints(tmp_path / "one" / "checkpoints")


def test_second_signal_ends_immediately(tmp_path):
  process, run = start(tmp_path, *ENDLESS), tmp_path / "one"
  wait_for_start(process, run)
  children = psutil.Process(process.pid).children(recursive=True)
  # The signals differ, because two equal pending signals are delivered as one.
  os.kill(process.pid, signal.SIGINT)
  os.kill(process.pid, signal.SIGTERM)
  finish(process)
  # Either signal may be delivered last.
  assert process.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
  assert not (run / "summary.json").exists()
  _, alive = psutil.wait_procs(children, timeout=180)
  assert not alive
  newest = resumable(run)[-1]
  again = resume(run, f"max_env_steps={newest.env_steps + 200}", "evaluation.final_episodes=3")
  _, err = finish(again, 300)
  assert again.returncode == 0, err
  assert f"resuming from {newest.name}" in err


def test_stalled_learner_bounds_the_work_in_flight(tmp_path):
  process, run = start(tmp_path, *ENDLESS), tmp_path / "one"
  wait_for_start(process, run)
  (server,) = actors(process, "ParameterServer")
  config = RunDirectory.open(run).load_config()
  server.suspend()
  seen = []

  def is_stalled() -> bool:
    """Returns whether neither steps nor updates have increased for five seconds."""
    seen.append((time.monotonic(), steps(run)))
    return any(seen[-1][0] - at > 5 for at, made in seen if made == seen[-1][1])

  wait_for(process, is_stalled, "end of the work in flight")
  made, updated = steps(run)
  time.sleep(5)
  assert steps(run) == (made, updated)
  server.resume()
  wait_for_progress(process, run, "steps after it")
  end(process, run)
  # Acting stops once it is ahead of learning by the slack of the queues.
  served = updated * config.learner.batch_size / config.learner.samples_per_step
  segment = config.workers.num_envs * config.workers.segment_length
  assert made <= config.replay.min_steps_to_learn + served + 2 * slack_steps(config) + segment
  for name in ("segments", "batches"):
    max_in_flight = max(line.get(f"system/{name}_in_flight", 0) for line in ticks(run))
    assert 0 < max_in_flight <= getattr(config.ray, f"{name}_in_flight")
  assert sum(faults(run, kind) for kind in ("parameter_server", "training_worker", "dropped_steps")) == 0


def test_full_disk_costs_checkpoints_only(tmp_path):
  folder = tmp_path / "disk"
  folder.mkdir()
  disk = SmallDisk(folder, mib=16)
  try:
    fill_and_free(folder, disk)
  finally:
    disk.unmount()


def fill_and_free(folder: Path, disk: SmallDisk) -> None:
  process, run = start(folder, *ENDLESS, "logging.tensorboard=false"), folder / "one"
  try:
    wait_for_start(process, run)
    disk.fill()
    filled = ticks(run)[-1]
    logged = run / "logs" / "driver.log"
    before = {info.name for info in list_checkpoints(run / "checkpoints")}
    # While the disk is full, lines of metrics are kept in memory.
    time.sleep(10)
    assert process.poll() is None
    whole = list_checkpoints(run / "checkpoints")
    assert {info.name for info in whole} == before
    config = RunDirectory.open(run).load_config()
    spec = env_spec(config.env.name)
    for info in whole:
      template = algorithm_of(config).training_state_template(config, spec)
      load_checkpoint(info.path, template, expected_of(config, spec))
    last = steps(run)
    disk.free()
    newest = whole[-1].env_steps

    def is_saved() -> bool:
      return list_checkpoints(run / "checkpoints")[-1].env_steps > newest

    wait_for(process, is_saved, "a checkpoint once there is room")
    wait_for(process, lambda: steps(run) > last, "the lines that waited")
    final = end(process, run)
    assert final["faults/disk"] > 0
    assert "a checkpoint can be written again" in logged.read_text()
    meanwhile = [line for line in ticks(run) if 2 < line["wall_s"] - filled["wall_s"] < 9]
    assert meanwhile[-1]["env_steps"] > filled["env_steps"], "lines of the time without space are missing"
  finally:
    if process.poll() is None:
      os.killpg(process.pid, signal.SIGKILL)
      process.communicate()


def test_second_rollback_ends_the_run(tmp_path):
  process, run = start(tmp_path, *ENDLESS), tmp_path / "one"
  wait_for_start(process, run)
  end(process, run)
  again = resume(
    run,
    "learner.learning_rate.peak=1e30",
    "learner.learning_rate.end=1e30",
    "learner.max_skipped_updates=7",
    # With these periods, workers and checkpoints keep the finite parameters that the run resumed with.
    "ray.publish_period_updates=1000000",
    "checkpoint.period_s=1000000",
    "checkpoint.first_s=null",
    "evaluation.period_env_steps=100000000",
    "logging.period_s=1e-9",
  )
  out, err = finish(again, 300)
  assert_one_line(
    subprocess.CompletedProcess([], again.returncode, out, err), "7 updates in a row were skipped"
  )
  assert " is not finite" in err
  last = ticks(run)[-1]
  assert last["faults/rollbacks"] == 1
  log = (run / "logs" / "driver.log").read_text()
  assert log.count("; restored the parameters of learner step") == 1
  named = [key for key, count in last.items() if key.startswith("faults/not_finite_") and count]
  assert any(f"{key.removeprefix('faults/not_finite_')} is not finite" in log for key in named)
