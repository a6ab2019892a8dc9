"""Tests of runs with a gate for new parameters: the metrics, and a surgery."""

import pytest

import moozi
from moozi import cli as program
from moozi.envs import registry
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory
from moozi.training.resume import load_saved
from tests.tiny_run import RESUMABLE, keywords

pytestmark = pytest.mark.slow
pytest.importorskip("pyspiel")
RUN = (
  *(*RESUMABLE, "env.name=open_spiel:tic_tac_toe", "targets.discount=1", "max_env_steps=128"),
  *("evaluation.gate_score=0", "evaluation.gate_episodes=4"),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  """Returns a finished run of 128 steps."""
  folder = str(tmp_path_factory.mktemp("gated"))
  return moozi.train({}, **keywords(RUN), run={"dir": folder, "name": "first"}).path


def saved(path):
  directory = RunDirectory.open(path)
  config = directory.load_config()
  return load_saved(config, registry.env_spec(config.env.name), directory).state.progress


def test_each_evaluation_reports_the_score(finished):
  ticks = read_metrics(finished / "metrics.jsonl")
  evaluated = [tick for tick in ticks if "test/score" in tick]
  assert len(evaluated) == 2
  assert [tick for tick in ticks if "test/gate_score" in tick] == evaluated
  assert all(0 <= tick["test/gate_score"] <= 1 for tick in evaluated)
  assert all(1 <= tick["test/gate_distinct"] <= 4 for tick in evaluated)


def test_surgery_converts_the_parameters_that_act(finished):
  with pytest.raises(SystemExit) as ended:
    program.main(["surgery", str(finished), "network.latent_size=32", "--out", "second"])
  assert ended.value.code == 0
  second = finished.parent / "second"
  before, after = saved(finished), saved(second)
  assert after["gate/version"] == before["gate/version"] > 0
  names = sorted(name for name in before if name.startswith("gate/variables/"))
  assert names
  assert sorted(name for name in after if name.startswith("gate/variables/")) == names
  weights = "gate/variables/0/dynamics/head/hidden/w"
  assert [progress[weights].shape[0] for progress in (before, after)] == [16, 32]
  again = moozi.resume(second, max_env_steps=192)
  assert again.summary["env_steps"] == 192
