"""Tests of `moozi plan` with costs that are made by hand; `tests/training` measures some."""

import json

import pytest

from moozi.training import calibration
from moozi.training.sizing import CallCost, PartCosts
from tests.tiny_run import TINY

CONFIG = ("tiny/catch", *TINY, "runtime=ray", "max_env_steps=3600000", "ray.num_cpus=4")


@pytest.fixture
def measured(monkeypatch):
  """Makes the calibration return costs by hand; returns the arguments that it receives."""
  asked = []

  def calibrate(config, spec, seconds, on_phase):
    asked.append((config.env.name, spec.name, seconds))
    return PartCosts(
      act=CallCost(0.032, 0.032),
      learn=CallCost(0.001, 0.001),
      memory_mib={"training_worker": 300.0, "driver": 100.0},
      act_by_width={4: 1000.0, 8: 1500.0},
    )

  monkeypatch.setattr(calibration, "calibrate", calibrate)
  return asked


def test_text(cli, measured):
  """A worker makes 32 steps in 32 ms."""
  status, out, err = cli("plan", *CONFIG, "--cpus", "8", "--gpus", "0", "--memory", "4", "--seconds", "7")
  assert (status, err) == (0, "")
  assert measured == [("tiny:catch", "tiny:catch", 7.0)]
  assert "tiny:catch, algorithm=muzero, Ray on 1 × 8 cores, 0 GPUs, 4.0 GiB" in out
  assert "expected: 1,000 environment steps/s; 3,600,000 steps take 1.00 h" in out
  assert "limit: training worker" in out
  assert "4: 1,000, 8: 1,500" in out
  assert "node 0: 1 × parameter server, 1 × replay buffer, 1 × training worker, 1 × testing worker" in out
  assert "warning" not in out


def test_json(cli, measured):
  status, out, _ = cli("plan", *CONFIG, "--json", "--nodes", "2", "--cpus", "16", "--gpus", "1")
  assert status == 0
  found = json.loads(out)
  assert found["steps_per_s"] == pytest.approx(1000)
  assert found["limits"]["reanalyze_worker"] is None
  assert found["costs"]["act"] == {"seconds": 0.032, "cpu_s": 0.032, "crowded_s": 0.0}
  assert (found["hardware"]["nodes"], found["hardware"]["cpus"], found["hardware"]["gpus"]) == (2, 16, 1)


def test_one_process_shows_shares_of_the_time(cli, measured):
  _, out, _ = cli("plan", *CONFIG, "runtime=local")
  assert "algorithm=muzero, one process on" in out
  assert "share of the time" in out
  assert "node 0" not in out
  assert "acting limits the run" not in out


def test_a_run_that_does_not_fit(cli, measured):
  status, out, _ = cli("plan", *CONFIG, "ray.num_cpus=1", "--cpus", "1")
  assert status == 0
  assert "warning: the actors request" in out


@pytest.mark.parametrize(
  ("setting", "reason"),
  [
    ("acting.mode=server", "must be worker for a plan, which does not measure inference servers"),
    ("learner.num_hosts=2", "must be 1 for a plan, which does not measure sums over hosts"),
  ],
)
def test_runs_of_which_parts_are_not_measured(refused, setting, reason):
  assert refused("plan", *CONFIG, setting) == f"moozi: error: {setting}: {reason}\n"


@pytest.mark.parametrize(
  ("arguments", "text"),
  [
    ((), "CONFIG: missing"),
    (("workers.num_envs=4",), "CONFIG: missing"),
    (("tiny/catchh",), "tiny/catch"),
    (("tiny/catch", "workers.num_env=4"), "workers.num_env"),
    (("tiny/catch", "--cpus", "0"), "0: must be an integer from 1"),
    (("tiny/catch", "--gpus", "x"), "x: must be an integer from 0"),
    (("tiny/catch", "--nodes", "1001"), "1001: must be an integer from 1 to 1,000"),
    (("tiny/catch", "--seconds", "0"), "--seconds=0: must be a number of seconds from 1 to 3600"),
    (("tiny/catch", "env.name=tiny:cat"), "tiny:cat"),
  ],
)
def test_bad_input_is_one_line(refused, measured, arguments, text):
  assert text in refused("plan", *arguments)
  assert measured == []
