"""Tests of `moozi plan` with costs that are made by hand; `tests/training` measures some."""

import json
import re

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
      env_share=0.25,
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
  assert ", without evaluations and checkpoints\n" in out
  assert "bottleneck: training worker (acting)" in out
  assert re.search(r"resource +steps/s it allows +busy\ntraining worker \(acting\) +1,000 +100%\n", out)
  assert "4: 1,000, 8: 1,500" in out
  assert "node 0: 1 × parameter server, 1 × replay buffer, 1 × training worker, 1 × testing worker" in out
  assert "warning" not in out


def test_rounds_of_ppo_show_shares_of_the_time(cli, measured):
  """A round is a segment of 32 ms and 1 ms of updates; passing costs nothing."""
  ppo = ("algorithm=ppo", "ppo.network.kind=mlp", "ppo.num_envs=4", "ppo.segment_length=8")
  _, out, _ = cli("plan", *CONFIG, *ppo)
  shares = r"training worker \(acting\) +97%\nparameter server \(learning\) +3%\n"
  assert re.search(rf"^part +share of the time\n{shares}", out, re.MULTILINE)
  assert re.search(r"^a decision +[\d,]+\nan update, for each sample +[\d,]+$", out, re.MULTILINE)


def test_the_network_is_counted(cli, measured):
  """By hand: a hidden state of 16 entries, heads of 16 units, 61 categories, 4 actions."""
  _, out, _ = cli("plan", *CONFIG, "network.norm=none")
  projection = 2 * (16 * 16 + 16)
  simulation = (16 + 4) * 16 + 16 * 16 + 16 * 16 + 16 * 61 + 16 * 2 * 16 + 16 * (61 + 4)
  assert re.search(rf"^projection +{projection}$", out, re.MULTILINE)
  assert re.search(rf"^a simulation: dynamics and prediction +{simulation:,}$", out, re.MULTILINE)
  data = json.loads(cli("plan", *CONFIG, "network.norm=none", "--json")[1])["network"]
  assert data["parameters"]["projection"] == projection
  assert data["num_parameters"] == sum(data["parameters"].values())
  assert data["multiply_adds"]["simulation"] == simulation
  assert set(data["multiply_adds"]) == {"representation", "simulation", "update"}
  assert re.search(rf"^total +{data['num_parameters']:,}$", out, re.MULTILINE)


def test_the_share_of_each_call(cli, measured):
  """Of 32 steps: a segment of 32 ms, and 128 samples in calls of 32, each of 1 ms."""
  _, out, _ = cli("plan", *CONFIG, "learner.samples_per_step=4", "runtime=local")
  assert re.search(r"^act: a worker's segment +32.00 +32.00 +1,000.0 +89%$", out, re.MULTILINE)
  assert re.search(r"^learn: a learner's call +1.00 +1.00 +125.0 +11%$", out, re.MULTILINE)
  assert (
    "\na worker's segment: 25% of its duration is in the environments, 75% in the search and other" in out
  )
  found = json.loads(cli("plan", *CONFIG, "learner.samples_per_step=4", "--json")[1])
  assert found["shares"]["act"] == pytest.approx(8 / 9)
  assert sum(found["shares"].values()) == pytest.approx(1)


def test_games_of_the_gate_are_left_out(cli, measured):
  gate = ("env.name=open_spiel:tic_tac_toe", "evaluation.gate_score=0.55")
  assert ", without evaluations, games of the gate and checkpoints\n" in cli("plan", *CONFIG, *gate)[1]
  found = json.loads(cli("plan", *CONFIG, *gate, "--json")[1])
  assert found["left_out"] == ["evaluations", "games of the gate", "checkpoints"]


def test_json(cli, measured):
  status, out, _ = cli("plan", *CONFIG, "--json", "--nodes", "2", "--cpus", "16", "--gpus", "1")
  assert status == 0
  found = json.loads(out)
  assert found["steps_per_s"] == pytest.approx(1000)
  assert found["limits"]["reanalyze_worker"] is None
  assert found["costs"]["act"] == {"seconds": 0.032, "cpu_s": 0.032, "crowded_s": 0.0}
  assert (found["hardware"]["nodes"], found["hardware"]["cpus"], found["hardware"]["gpus"]) == (2, 16, 1)


def test_one_process_has_no_resources(cli, measured):
  _, out, _ = cli("plan", *CONFIG, "runtime=local")
  assert "algorithm=muzero, one process on" in out
  assert "bottleneck: acting\n" in out
  assert "steps/s it allows" not in out
  assert "node 0" not in out
  assert "acting does not limit" not in out


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
