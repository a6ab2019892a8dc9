"""Tests that the plain arrays of a search tree equal mctx's tree, node by node."""

import jax
import numpy as np
import pytest
from scipy.special import softmax

from moozi.agent.search_tree import plain_tree, root_state
from moozi.core.config import PlannerConfig
from tests.agent.test_planner import LEGAL, ROOTS, A, N, run
from tests.agent.tiny import one_hot_roots, random_tables
from tests.fast_jit import fast_jit

PUCT = PlannerConfig(algorithm="puct", num_simulations=12)
GUMBEL = PlannerConfig(num_simulations=12, gumbel_scale=0.0)
CASES = {
  "puct": (PUCT, 1),
  "gumbel": (GUMBEL, 1),
  "gumbel_two_players": (GUMBEL, 2),
  "shallow": (PUCT.model_copy(update={"max_depth": 2}), 1),
}


@pytest.fixture(
  scope="module",
  params=[
    "gumbel_two_players",
    *(pytest.param(c, marks=pytest.mark.slow) for c in ("puct", "gumbel", "shallow")),
  ],
)
def searched(request):
  config, num_players = CASES[request.param]
  tables = random_tables(np.random.default_rng(3), N, A)
  output = run(config, tables, ROOTS, LEGAL, num_players=num_players)
  return config, num_players, tables, output, jax.device_get(fast_jit(plain_tree)(output.tree))


def test_nodes_equal_mctx_tree(searched):
  config, _, tables, output, plain = searched
  tree = output.tree
  for b in range(len(ROOTS)):
    state = {0: ROOTS[b]}
    assert (plain.parent[b, 0], plain.action[b, 0], plain.depth[b, 0]) == (-1, -1, 0)
    for i in np.flatnonzero(plain.visits[b])[1:]:
      p, a = int(plain.parent[b, i]), int(plain.action[b, i])
      assert tree.children_index[b, p, a] == i
      assert plain.visits[b, i] == tree.children_visits[b, p, a]
      assert plain.depth[b, i] == plain.depth[b, p] + 1
      state[i] = tables["next_state"][state[p], a]
      assert plain.reward[b, i] == pytest.approx(tables["reward"][state[p], a], abs=2e-3)
      assert plain.raw_value[b, i] == pytest.approx(tables["value"][state[i]], abs=2e-3)
      assert plain.value[b, i] == tree.node_values[b, i]
    assert plain.visits[b, 0] == config.num_simulations + 1
    is_unused = plain.visits[b] == 0
    assert not plain.depth[b][is_unused].any()
    assert not plain.reward[b][is_unused].any()


def test_priors_are_the_networks(searched):
  _, _, tables, output, plain = searched
  for b in range(len(ROOTS)):
    for i in np.flatnonzero(plain.depth[b] == 1):
      want = output.prior_probs[b, plain.action[b, i]]
      assert plain.prior[b, i] == pytest.approx(float(want), abs=1e-5)
    below = np.flatnonzero(plain.depth[b] == 2)
    for i in below:
      first = plain.parent[b, i]
      state = tables["next_state"][ROOTS[b], plain.action[b, first]]
      want = softmax(tables["logits"][state])[plain.action[b, i]]
      assert plain.prior[b, i] == pytest.approx(float(want), abs=1e-5)
    assert len(below)


def test_edges_equal_q_values(searched):
  _, num_players, _, output, plain = searched
  discount = 0.9 if num_players == 1 else -0.9
  q_values = plain.reward + discount * plain.value
  for b in range(len(ROOTS)):
    for i in np.flatnonzero(plain.depth[b] == 1):
      assert q_values[b, i] == pytest.approx(float(output.q_values[b, plain.action[b, i]]), abs=1e-4)


def test_depths_equal_simulation_ends(searched):
  config, _, _, output, plain = searched
  for b in range(len(ROOTS)):
    # The simulations that end at a node are its visits minus those of its children.
    ended = plain.visits[b].copy()
    for i in np.flatnonzero(plain.depth[b]):
      ended[plain.parent[b, i]] -= plain.visits[b, i]
    ended[0] = 0
    assert ended.sum() == config.num_simulations
    assert output.depth_mean[b] == pytest.approx((ended * plain.depth[b]).sum() / config.num_simulations)
    assert output.depth_max[b] == plain.depth[b].max()
  assert len({float(x) for x in output.depth_mean}) > 1


@pytest.mark.slow
def test_depth_of_chain():
  """With a single action, each simulation ends one step deeper than the one before."""
  tables = random_tables(np.random.default_rng(3), N, A)
  for num_simulations in (1, 4, 5):
    config = GUMBEL.model_copy(update={"num_simulations": num_simulations})
    chain = {**tables, "logits": np.where(np.arange(A) == 1, 0.0, -1e9) + np.zeros((N, A), np.float32)}
    legal = np.arange(A) == 1
    output = run(config, chain, ROOTS[:1], legal[None])
    assert output.depth_max.tolist() == [num_simulations]
    assert output.depth_mean.tolist() == [(num_simulations + 1) / 2]


def test_max_depth_leaves_nodes_unused(searched):
  config, _, _, _, plain = searched
  assert plain.depth.max() == 2 if config.max_depth else plain.depth.max() > 2
  assert (plain.visits == 0).any() == (config.max_depth is not None)


def test_root_state(searched):
  output = searched[3]
  np.testing.assert_array_equal(root_state(output.tree), one_hot_roots(ROOTS, N)[:, 0, 0])
