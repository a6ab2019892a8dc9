"""`moozi surgery` on runs of PPO and Q-learning, and `checkpoint.surgery` from their checkpoints."""

import json

import numpy as np
import pytest

import moozi
from moozi import cli as program
from moozi.envs import registry
from moozi.io.lineage import read_lineage
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory
from moozi.training.resume import load_saved
from tests.tiny_run import RESUMABLE

pytestmark = pytest.mark.slow

PPO = (
  *RESUMABLE,
  "algorithm=ppo",
  "ppo.num_envs=4",
  "ppo.segment_length=8",
  "ppo.num_minibatches=2",
  "ppo.network.activation=relu",
  "ppo.network.hidden_sizes=[8,8]",
  "ppo.normalize_rewards=true",
)
Q = (*RESUMABLE, "algorithm=q_learning", "q_learning.network.hidden_sizes=[8,8]")
CHANGES = {
  "ppo": ("ppo.network.hidden_sizes=[16,9,9]", "ppo.history_length=2", "ppo.num_envs=8"),
  "q_learning": ("q_learning.network.hidden_sizes=[16,9,9]", "targets.history_length=2"),
}
SETTINGS = {"ppo": PPO, "q_learning": Q}


@pytest.fixture(scope="module", params=["ppo", "q_learning"])
def finished(request, tmp_path_factory):
  """Returns the algorithm and a finished run of 128 steps."""
  folder = tmp_path_factory.mktemp(request.param)
  options = (*SETTINGS[request.param], "max_env_steps=128", f"run.dir={folder}", "run.name=first")
  with pytest.raises(SystemExit) as ended:
    program.main(["train", "tiny/catch", *options])
  assert ended.value.code == 0
  return request.param, folder / "first"


def saved(path):
  directory = RunDirectory.open(path)
  config = directory.load_config()
  return load_saved(config, registry.env_spec(config.env.name), directory).state


def test_a_run_is_continued_after_surgery(cli, finished):
  algorithm, first = finished
  status, _, err = cli("surgery", first, *CHANGES[algorithm], "run.name=second")
  assert status == 0, err
  assert "left behind: replay" not in err
  second = first.parent / "second"
  old, new = saved(first), saved(second)
  assert (new.env_steps, new.learner_steps) == (old.env_steps, old.learner_steps)
  assert (new.replay is None) == (algorithm == "ppo")
  if new.replay is not None:
    np.testing.assert_array_equal(new.replay.generations, old.replay.generations)
  (joint,) = read_lineage(second / "lineage.json")
  assert not joint.lost
  sizes = f"{algorithm}.network.hidden_sizes: [8, 8] → [16, 9, 9]"
  assert sizes in joint.changes
  # Both agents play the same games: their outputs are equal, and evaluation is free of noise.
  returns = [
    json.loads(cli("evaluate", path, "--json", "--returns")[1])["returns"] for path in (first, second)
  ]
  assert returns[0] == returns[1]
  status, _, err = cli("train", "--resume", second, "max_env_steps=256")
  assert status == 0, err
  assert read_metrics(second / "metrics.jsonl")[-1]["env_steps"] >= 256
  assert moozi.Run(second).summary["learner_steps"] > old.learner_steps


def test_a_start_names_the_setting_of_one_run_only(refused, finished, tmp_path):
  algorithm, first = finished
  start = (*SETTINGS[algorithm], f"run.dir={tmp_path}", "run.name=b", f"checkpoint.start_from={first}")
  section = "ppo" if algorithm == "ppo" else "learner"
  error = refused("train", "tiny/catch", *start, f"{section}.max_grad_rms=5")
  assert f"was saved without {section}.max_grad_rms, which must be set in both runs or in neither" in error
  if algorithm == "ppo":
    error = refused("train", "tiny/catch", *start, "ppo.normalize_rewards=false")
    assert "was saved with ppo.normalize_rewards, which must be set in both runs or in neither" in error
    assert "checkpoint.surgery" not in error
    error = refused("train", "tiny/catch", *start, "ppo.num_envs=8")
    assert "was saved with ppo.num_envs=4; must be 8 with ppo.normalize_rewards=true" in error
    assert "checkpoint.surgery=true converts it" in error
  assert not (tmp_path / "b").exists()


def test_a_new_run_starts_with_surgery(cli, finished, tmp_path):
  algorithm, first = finished
  options = (
    *SETTINGS[algorithm],
    *CHANGES[algorithm],
    "max_env_steps=128",
    f"run.dir={tmp_path}",
    "run.name=a",
  )
  start = f"checkpoint.start_from={first}"
  status, _, err = cli("train", "tiny/catch", *options, start)
  assert status == 2
  assert "checkpoint.surgery=true converts it" in err
  status, _, err = cli("train", "tiny/catch", *options, start, "checkpoint.surgery=true")
  assert status == 0, err
  assert moozi.Run(tmp_path / "a").summary["learner_steps"] > saved(first).learner_steps
