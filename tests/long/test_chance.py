"""Tests that agents with chance nodes learn the known values of tiny environments."""

from pathlib import Path

import numpy as np
import pytest

import moozi
from moozi.api.search import Search
from tests.envs.corridor import corridor_values

CONFIG = Path(__file__).parents[2] / "config" / "tiny" / "coin.yaml"
DETERMINISTIC = {"chance.codes": 0, "planners.train.algorithm": "puct", "planners.test.algorithm": "puct"}
HEADS_PROB = 0.6


def train(folder: Path, **overrides) -> moozi.Agent:
  settings = {"runtime": "local", "run.dir": str(folder), "run.name": "one", "logging.progress": "none"}
  run = moozi.train(CONFIG, **(settings | {"evaluation.gif": False} | overrides))
  return moozi.load(run, simulations=200)


def search_start(agent: moozi.Agent) -> Search:
  return agent.search(agent.make_env(seed=0).reset())


@pytest.mark.learning
@pytest.mark.parametrize("seed", [0, 1])
def test_search_values_the_coin(tmp_path, seed):
  """The root has the value of the coin; its outcomes have the values 1 (heads) and 0 (tails)."""
  found = search_start(train(tmp_path, seed=seed))
  assert found.action_names[found.action] == "risk"
  assert found.value == pytest.approx(HEADS_PROB, abs=0.02)
  tree = found.tree
  after_risk = np.flatnonzero((tree.parent == 0) & (tree.action == 2))[0]
  sides = np.flatnonzero((tree.parent == after_risk) & (tree.visits > 1))
  assert tree.is_chance[after_risk]
  np.testing.assert_allclose(sorted(tree.value[sides]), [0, 1], atol=0.05)
  np.testing.assert_allclose(sorted(tree.prior[sides]), [1 - HEADS_PROB, HEADS_PROB], atol=0.03)


@pytest.mark.learning
def test_deterministic_model_overestimates_the_coin(tmp_path):
  """In the training data the second risk mostly follows heads, so the model predicts too high a reward."""
  found = search_start(train(tmp_path, **DETERMINISTIC))
  assert found.q_values[1] > HEADS_PROB + 0.05


@pytest.mark.learning
def test_search_values_the_slippery_corridor(tmp_path):
  """The value of the start is 0.499; steps that never slip have 0.729."""
  slip, discount, length = 0.2, 0.9, 6
  agent = train(
    tmp_path,
    **{
      "env.name": "tiny:corridor",
      "env.kwargs": {"length": length, "slip_prob": slip, "max_episode_steps": None},
      "targets.discount": discount,
      "targets.unroll_steps": 5,
      "learner.consistency_coef": 2,
    },
  )
  found = search_start(agent)
  assert found.value == pytest.approx(corridor_values(length, slip, discount)[1][1], abs=0.07)
