"""Runs with observations of an image and a vector, which decide the best action together."""

import json

import jax
import numpy as np
import pytest

import moozi
from moozi.core.errors import UserError
from moozi.io.checkpoints import find_checkpoint, load_checkpoint
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.run import build
from moozi.training.algorithms import algorithm_of
from moozi.training.checks import check_players
from tests.commands.conftest import make_run
from tests.envs.signs import Signs
from tests.tiny_run import RESUMABLE, TINY

ENV = ("env.name=tests.envs.signs:Signs", "evaluation.max_random_starts=0")
MUZERO = ("network.kind=multi_input", "network.channels=4")
PPO = (
  "algorithm=ppo",
  "ppo.network.kind=multi_input",
  "ppo.network.channels=4",
  "ppo.network.hidden_sizes=[16]",
)
Q = ("algorithm=q_learning", "q_learning.network.kind=multi_input", "q_learning.network.hidden_sizes=[16]")


def train(cli, folder, name, *settings, config="base"):
  """Trains, and returns the run's folder."""
  status, _, err = cli("train", config, *settings, *ENV, f"run.dir={folder}", f"run.name={name}")
  assert status == 0, err
  return folder / name


def state_of(run):
  config = RunDirectory.open(run).load_config()
  template = algorithm_of(config).training_state_template(config, build.env_spec(config))
  return load_checkpoint(find_checkpoint(RunDirectory.open(run).checkpoints_path).path, template)


@pytest.mark.slow
@pytest.mark.parametrize(
  "settings",
  [
    (*MUZERO, "targets.history_length=2", "chance.codes=4", "planners.train.algorithm=stochastic_gumbel"),
    (*PPO, "ppo.history_length=2", "ppo.segment_length=16", "ppo.anneal_learning_rate=false"),
    (*Q, "targets.history_length=2"),
  ],
  ids=["muzero", "ppo", "q_learning"],
)
def test_a_resumed_run_equals_the_whole(cli, tmp_path, settings):
  whole = train(cli, tmp_path, "whole", *RESUMABLE, *settings, "max_env_steps=256")
  part = train(cli, tmp_path, "part", *RESUMABLE, *settings, "max_env_steps=128")
  status, _, err = cli("train", "--resume", part, "max_env_steps=256", "--allow-code")
  assert status == 0, err
  for a, b in zip(*(jax.tree_util.tree_leaves(state_of(run)) for run in (whole, part)), strict=True):
    np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [MUZERO, PPO], ids=["muzero", "ppo"])
def test_an_agent_acts_on_the_environments_own_observations(tmp_path, settings):
  agent = moozi.load(make_run(tmp_path, "run", *ENV, *settings, "targets.history_length=2"), allow_code=True)
  env, own = Signs(), agent.make_env(seed=0)
  observation, _ = env.reset(seed=3)
  frame = own.to_observation(observation).frame
  agent.reset()
  action = agent.act(observation)
  agent.reset()
  assert agent.act(frame) == action
  agent.reset()
  assert agent.act({"image": observation["image"], "sign": observation["sign"]}) == action


@pytest.mark.parametrize(
  ("settings", "key"),
  [
    (("network.kind=multi_input",), r"^network\.kind"),
    (("algorithm=ppo", "ppo.network.kind=multi_input"), r"^ppo\.network\.kind"),
    (("algorithm=q_learning", "q_learning.network.kind=multi_input"), r"^q_learning\.network\.kind"),
  ],
)
def test_a_run_whose_observations_are_one_array_does_not_start(settings, key):
  config = load_config(None, ["env.name=tiny:catch", *settings])
  spec = build.env_spec(config)
  check = check_players if config.searches else algorithm_of(config).check
  with pytest.raises(
    UserError, match=key + r"=multi_input: needs a Dict or Tuple .*name=tiny:catch are images"
  ):
    check(config, spec)


@pytest.mark.learning
@pytest.mark.parametrize(
  ("config", "settings"),
  [
    ("tiny/catch", (*MUZERO, "targets.discount=0.5", "max_env_steps=10_000")),
    (
      "base",
      (
        *(*TINY, *PPO, "ppo.num_envs=16", "ppo.segment_length=64", "ppo.learning_rate=3e-3"),
        "max_env_steps=20_000",
      ),
    ),
  ],
  ids=["muzero", "ppo"],
)
def test_learns_what_needs_both(cli, tmp_path, config, settings):
  """The best play by the image or the vector alone has a return of 2, and by both of 4."""
  quiet = ("runtime=local", "logging.progress=none", "evaluation.gif=false", "evaluation.final_episodes=50")
  run = train(cli, tmp_path, "run", *settings, *quiet, config=config)
  assert json.loads((run / "summary.json").read_text())["test_return_mean"] >= 3.4
