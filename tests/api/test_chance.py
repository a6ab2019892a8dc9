"""Tests that a run with chance nodes trains, resumes, searches, and can be evaluated and inspected."""

import numpy as np
import pytest

import moozi
from moozi.core.errors import UserError
from moozi.io.config import load_config
from tests.tiny_run import TINY

STOCHASTIC = ("chance.codes=3", "planners.train.algorithm=stochastic", "planners.test.algorithm=stochastic")
QUIET = ("runtime=local", "logging.progress=none", "evaluation.gif=false", "logging.tensorboard=false")


@pytest.fixture(scope="module", params=["outcome", "afterstate"])
def run(request, tmp_path_factory):
  folder = tmp_path_factory.mktemp("chance")
  reanalyze = ("reanalyze.ratio=0.5", "reanalyze.batch_size=16")
  reward = f"chance.reward_from={request.param}"
  options = [*TINY, *STOCHASTIC, reward, *QUIET, *reanalyze, f"run.dir={folder}", "run.name=a"]
  return moozi.train(load_config(None, options))


@pytest.mark.slow
def test_agent_searches_with_chance_nodes(run):
  agent = moozi.load(run)
  found = agent.search(agent.make_env(seed=0).reset())
  tree = found.tree
  assert tree.is_chance.any()
  assert (tree.is_chance[tree.depth % 2 == 1]).all()
  assert not tree.is_chance[tree.depth % 2 == 0].any()
  assert found.visits.sum() == found.num_simulations
  assert "code " in found.svg()
  assert "round ends" in found.svg()
  episode = agent.inspect(0)
  assert np.isfinite(episode.network_q_values).all()
  assert np.isfinite(episode.imagined_values).all()
  assert agent.evaluate(3).returns.shape == (3,)


@pytest.mark.slow
def test_run_resumes_and_keeps_its_codes(run):
  assert moozi.resume(run.path, max_env_steps=384).summary["env_steps"] >= 384
  with pytest.raises(UserError, match=r"another network: network.chance.codes is 3, expected 4"):
    moozi.resume(run.path, **{"max_env_steps": 448, "chance.codes": 4})
  with pytest.raises(UserError, match=r"another network: network.chance.encoder_size is None, expected 8"):
    moozi.resume(run.path, **{"max_env_steps": 448, "chance.encoder_size": 8})


def test_searches_need_chance_nodes():
  from moozi.core.config import Config

  with pytest.raises(ValueError, match=r"planners.train.algorithm=stochastic: the model has no chance nodes"):
    Config(planners={"train": {"algorithm": "stochastic"}})
  with pytest.raises(ValueError, match=r"chance.codes=2: network.kind=resnet has no chance nodes"):
    Config(chance={"codes": 2}, network={"kind": "resnet"})
  with pytest.raises(ValueError, match=r"chance.codes=2 needs algorithm=muzero, not ppo"):
    Config(chance={"codes": 2}, algorithm="ppo")
  assert Config(chance={"codes": 2}).frames_ahead == Config().targets.unroll_steps
  assert Config().frames_ahead == 1
