"""Tests of complete runs with injected faults, through the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moozi.io.metrics import read_metrics
from tests.tiny_run import TINY

ROOT = Path(__file__).parents[2]


def train(folder: Path, *overrides: str, timeout_s: float = 1500, **kwargs) -> subprocess.CompletedProcess:
  """Trains a tiny run in `folder/one`; returns the ended process."""
  config = folder / "config.yaml"
  config.write_text("runtime: local\n")
  command = [
    sys.executable,
    "-m",
    "moozi.cli",
    "train",
    str(config),
    *TINY,
    f"run.dir={folder}",
    "run.name=one",
  ]
  options = ["evaluation.final_episodes=1", "evaluation.gif=false", "logging.tensorboard=false"]
  environment = os.environ | {"PYTHONPATH": str(ROOT)}
  return subprocess.run(
    [*command, *options, *overrides],
    capture_output=True,
    text=True,
    timeout=timeout_s,
    env=environment,
    check=False,
    **kwargs,
  )


def assert_one_line(done: subprocess.CompletedProcess, message: str) -> None:
  """Asserts that the run ended with status 2 and a single error line that contains the message."""
  assert done.returncode == 2, done.stderr
  assert "Traceback" not in done.stderr
  (line,) = [line for line in done.stderr.splitlines() if line.startswith("moozi: error: ")]
  assert message in line


@pytest.mark.slow
def test_infinite_loss_ends_the_run_and_keeps_its_folder(tmp_path):
  done = train(
    tmp_path,
    "learner.learning_rate.peak=1e30",
    "learner.optimizer=adam",
    "learner.max_skipped_updates=7",
    "logging.period_s=1e-9",
    "max_env_steps=100000",
  )
  assert_one_line(done, "is not finite: 7 updates in a row were skipped")
  log = (tmp_path / "one" / "logs" / "driver.log").read_text()
  assert log.count("is skipped: ") in (7, 8)  # a call makes two updates
  assert "the run ends: " in log
  lines = read_metrics(tmp_path / "one" / "metrics.jsonl")
  assert lines[-1]["faults/skipped_updates"] in (5, 6)


FAULTY = "env.name=tests.envs.faulty:make_env"
RUNTIMES = {"local": ("runtime=local",), "ray": ("runtime=ray", "ray.num_cpus=4")}


def log_of(folder: Path, runtime: str) -> str:
  """Returns the log of the process that acts."""
  actor = "driver" if runtime == "local" else "training_worker_0"
  return (folder / "one" / "logs" / f"{actor}.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "how"), [("local", "raise"), ("ray", "raise"), ("ray", "hang")])
def test_failing_environments_are_replaced(tmp_path, runtime, how):
  options = [f"env.kwargs.how={how}", "env.kwargs.every_seed=false", "workers.env_timeout_s=2"]
  # Environments of the evaluation may fail too, which loses the evaluation.
  options += ["evaluation.max_random_starts=0", "logging.period_s=1e-9", "max_env_steps=640"]
  done = train(tmp_path, FAULTY, *options, *RUNTIMES[runtime])
  assert done.returncode == 0, done.stderr
  assert "faults/env_errors" in done.stderr
  last = read_metrics(tmp_path / "one" / "metrics.jsonl")[-1]
  assert last["env_steps"] >= 640
  assert last["faults/env_errors"] >= 1
  assert last["faults/refused_segments"] == last["faults/lost_steps"] == 0
  assert last.get("faults/training_worker", 0) == 0
  assert last["learner_steps"] > 0
  log = log_of(tmp_path, runtime)
  assert {"raise": "ArithmeticError: the environment's own error", "hang": "no answer for 2 s"}[how] in log
  assert "in _fail" in log


@pytest.mark.slow
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("how", ["hang", "raise"])
def test_too_many_environment_faults_end_the_run(tmp_path, runtime, how):
  """The environment's error ends the run with one line, with Ray without its traceback."""
  options = [f"env.kwargs.how={how}", "env.kwargs.sound_envs=5", "workers.env_timeout_s=2"]
  options += ["workers.num_envs=1", "workers.max_env_faults=2"]
  done = train(tmp_path, FAULTY, *options, *RUNTIMES[runtime])
  message = {"hang": "no answer for 2 s", "raise": "ArithmeticError: the environment's own error in step 5"}
  assert_one_line(done, message[how])
  log = log_of(tmp_path, runtime)
  assert "consecutive fault 2" in log
  assert log.count("Traceback") >= 2
  driver_log = (tmp_path / "one" / "logs" / "driver.log").read_text()
  assert f"the run ends: env.name=tests.envs.faulty:make_env: {message[how]}" in driver_log


@pytest.mark.slow
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_refused_segments_are_counted(tmp_path, runtime):
  options = [
    "env.kwargs.how=nan",
    "env.kwargs.every_seed=false",
    "logging.period_s=1e-9",
    "max_env_steps=640",
  ]
  done = train(tmp_path, FAULTY, *options, *RUNTIMES[runtime])
  assert done.returncode == 0, done.stderr
  lines = read_metrics(tmp_path / "one" / "metrics.jsonl")
  last = lines[-1]
  assert last["faults/refused_segments"] >= 1
  if runtime == "local":
    # The worker resets its environments at once, so only the steps of refused segments are lost.
    assert last["faults/lost_steps"] == 32 * last["faults/refused_segments"]
  added = max(line.get("replay/added", 0) for line in lines)
  assert added <= last["env_steps"] - last["faults/lost_steps"]
  message = "training_worker_0: a segment of 32 steps is refused: last_reward is not finite"
  for actor in ("driver", *(("replay_buffer",) if runtime == "ray" else ())):
    assert message in (tmp_path / "one" / "logs" / f"{actor}.log").read_text()


@pytest.mark.slow
def test_ray_environment_stuck_in_c_costs_its_worker(tmp_path):
  """A worker whose environment hangs in C is restarted; this includes the testing worker."""
  options = ["env.kwargs.how=stuck", "env.kwargs.every_seed=false", "workers.env_timeout_s=1"]
  options += ["logging.period_s=1e-9", "max_env_steps=320", "ray.max_restarts=20"]
  done = train(tmp_path, FAULTY, *options, "runtime=ray", "ray.num_cpus=4")
  assert done.returncode == 0, done.stderr
  last = read_metrics(tmp_path / "one" / "metrics.jsonl")[-1]
  assert last["env_steps"] >= 320
  assert last["faults/training_worker"] >= 1
  assert "in _fail" in (tmp_path / "one" / "logs" / "training_worker_0.log").read_text()
