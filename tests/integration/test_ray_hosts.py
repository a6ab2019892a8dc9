"""Tests of a run with Ray whose learner is on two hosts: each fails or hangs, and one resumes the run."""

import signal

import pytest

from tests.integration.runs import (
  ENDLESS,
  actors,
  faults,
  kill,
  popen,
  start,
  steps,
  ticks,
  wait_for,
  wait_for_progress,
  wait_for_start,
)
from tests.integration.test_ray_faults import end
from tests.integration.test_ray_run import assert_loopback_only

pytestmark = pytest.mark.slow


# The checkpoint period is long enough for updates that are not yet in a checkpoint.
TWO = (*ENDLESS, "learner.num_hosts=2", "ray.learner.num_cpus=0.5", "checkpoint.period_s=15")


def lose_each_host(process, run, number):
  """Sends a signal to each host, which makes one fault of it; returns the last line of metrics."""
  for count, kind in enumerate(("LearnerHost", "ParameterServer"), start=1):
    wait_for_progress(process, run, "updates")
    kill(process, kind, number)
    wait_for(process, lambda n=count: faults(run, "parameter_server") == n, f"fault {count}")
    wait_for_progress(process, run, "updates after it")
    assert len(actors(process, "LearnerHost")) == len(actors(process, "ParameterServer")) == 1
  last = end(process, run)
  assert last["faults/parameter_server"] == 2
  assert last["faults/lost_updates"] > 0
  assert last["faults/lost_steps"] == 0
  return last


def test_hosts_that_hang(tmp_path):
  """JAX notices a suspended LearnerHost, and the driver a suspended parameter server."""
  process, run = start(tmp_path, *TWO, "ray.heartbeat_timeout_s=30"), tmp_path / "one"
  wait_for_start(process, run)
  lose_each_host(process, run, signal.SIGSTOP)
  assert "parameter_server has not answered for 3" in (run / "logs" / "driver.log").read_text()


def test_hosts_killed_and_another_number_of_hosts(tmp_path):
  process, run = start(tmp_path, *TWO), tmp_path / "one"
  wait_for_start(process, run)
  assert_loopback_only(process.pid)
  last = lose_each_host(process, run, signal.SIGKILL)
  assert "because no host can learn alone" in (run / "logs" / "parameter_server.log").read_text()
  assert (run / "logs" / "parameter_server_1.log").exists()
  assert "a learner on 2 hosts" in (run / "logs" / "driver.log").read_text()

  for num_hosts in (1, 2):
    updates = steps(run)[1]
    again = popen("train", "--resume", run, f"learner.num_hosts={num_hosts}")
    wait_for(again, lambda n=updates: steps(run)[1] > n, "updates of the resumed run")
    assert len(actors(again, "LearnerHost")) == num_hosts - 1
    wait_for_progress(again, run, "updates of the resumed run")
    end(again, run)
  assert ticks(run)[-1]["learner_steps"] > last["learner_steps"]
