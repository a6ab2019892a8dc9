"""Tests of sampled joint actions: exact draws and weights, and searches against slow oracles."""

import functools
import itertools

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from moozi.agent.planner import plan
from moozi.agent.sampled import effective_number, keys_of, sample_actions
from moozi.core.config import PlannerConfig
from moozi.ops.actions import encode_action
from tests.agent import puct_oracle
from tests.agent.tiny import one_hot_roots, random_tables, table_model
from tests.fast_jit import fast_jit

GROUPS = (1, 2, 3)
NUM_JOINT = 6
N, GAMMA = 6, 0.9
ROOTS = [0, 1, 2, 3]
PUCT = PlannerConfig(algorithm="puct", num_simulations=12, temperature=0, num_sampled_actions=NUM_JOINT)
GUMBEL = PlannerConfig(algorithm="gumbel", num_simulations=12, gumbel_scale=0, num_sampled_actions=NUM_JOINT)
SAMPLING = PUCT.model_copy(update={"num_sampled_actions": 3, "q_range_floor": 0.5})


def joint_log_probs(logits):
  """Returns the log probabilities of the joint actions of [B, P] logits, in their order."""
  first, second = (log_softmax(x, axis=-1) for x in (logits[:, 1:3], logits[:, 3:]))
  return np.stack([first[:, i] + second[:, j] for i, j in itertools.product(range(2), range(3))], axis=-1)


def factored_tables(seed):
  rng = np.random.default_rng(seed)
  return random_tables(rng, N, 1 + NUM_JOINT) | {"logits": rng.normal(size=(N, 6)).astype(np.float32)}


def enumerated(tables):
  """Returns the tables of the same game in which each joint action has an entry."""
  joint = joint_log_probs(tables["logits"])
  return tables | {"logits": np.concatenate([np.full((N, 1), -1e9), joint], axis=1).astype(np.float32)}


@functools.cache
def searcher(config, groups):
  """Returns search(tables, seed), which is compiled once."""
  legal = np.ones((len(ROOTS), sum(groups)), bool)
  legal[:, 0] = False
  model = table_model(groups)

  @fast_jit
  def run(tables, key, history):
    return plan(model, config, GAMMA, 1, tables, {}, key, history, legal, 0.0, with_tree=True)

  return lambda tables, seed, roots=ROOTS: jax.device_get(
    run(tables, jax.random.PRNGKey(seed), one_hot_roots(roots, N))
  )


@pytest.mark.parametrize(
  "config", [pytest.param(PUCT, marks=pytest.mark.slow), GUMBEL], ids=["puct", "gumbel"]
)
def test_all_actions_give_the_enumerated_search(config):
  sampled, whole = searcher(config, GROUPS), searcher(config, (1 + NUM_JOINT,))
  for seed in range(4):
    tables = factored_tables(seed)
    got, want = sampled(tables, seed), whole(enumerated(tables), 0)
    np.testing.assert_array_equal(np.sort(got.sampled_actions, axis=1), [range(1, 1 + NUM_JOINT)] * 4)
    np.testing.assert_array_equal(got.action, want.action)
    np.testing.assert_allclose(got.root_value, want.root_value, atol=1e-4)
    rows = np.arange(4)[:, None]
    for name, expected in (("sampled_probs", want.action_probs), ("q_values", want.q_values)):
      np.testing.assert_allclose(getattr(got, name), expected[rows, got.sampled_actions], atol=1e-4)
    # With all actions, the search's prior is the policy.
    joint = np.exp(joint_log_probs(tables["logits"][ROOTS]))
    np.testing.assert_allclose(got.effective_samples, np.exp(-np.sum(joint * np.log(joint), 1)), rtol=1e-4)
    assert want.effective_samples is None
    marginals = np.einsum("ba,ap->bp", want.action_probs[:, 1:], encode_action(np.arange(1, 7), GROUPS))
    np.testing.assert_allclose(got.action_probs, marginals, atol=1e-4)


def test_visits_equal_a_plain_search_of_the_same_samples():
  search = searcher(SAMPLING, GROUPS)
  for seed in range(4):
    tables = factored_tables(seed)
    output = search(tables, seed)
    tree = output.tree
    for b, state in enumerate(ROOTS):
      samples = [
        dict(zip(actions.tolist(), np.exp(logits - np.logaddexp.reduce(logits)).tolist(), strict=True))
        for actions, logits in zip(tree.embeddings.actions[b], tree.children_prior_logits[b], strict=True)
      ]
      root = puct_oracle.search_samples(tables, state, samples, 12, GAMMA, 1.25, 19652.0, 0.5)
      want = [root.child_visits.get(a, 0) / 12 for a in output.sampled_actions[b].tolist()]
      np.testing.assert_allclose(output.sampled_probs[b], want, atol=1e-6)
      assert output.root_value[b] == pytest.approx(root.value, abs=1e-3)
      entropy = -sum(p * np.log(p) for p in samples[0].values())
      assert output.effective_samples[b] == pytest.approx(np.exp(entropy), rel=1e-4)


@pytest.mark.parametrize(
  "config", [pytest.param(PUCT, marks=pytest.mark.slow), GUMBEL], ids=["puct", "gumbel"]
)
def test_noise_free_search_ignores_key_and_other_roots(config):
  config = config.noise_free().model_copy(update={"num_sampled_actions": 3})
  search, tables = searcher(config, GROUPS), factored_tables(0)
  first, other = search(tables, 0), search(tables, 1, [2, 5, 0, 2])

  def fields(output, row):
    samples = output.tree.embeddings
    found = output.action, output.sampled_actions, output.sampled_probs, output.root_value, samples.actions
    return [np.asarray(x)[row] for x in (*found, samples.keys)]

  for own, rows in ((2, (0, 3)), (0, (2,))):
    for row in rows:
      for a, b in zip(fields(first, own), fields(other, row), strict=True):
        np.testing.assert_array_equal(a, b)
  keys = np.asarray(first.tree.embeddings.keys)[np.asarray(first.tree.node_visits) > 0]
  assert len(np.unique(keys, axis=0)) == len(keys) == 4 * 13


def test_noisy_search_draws_by_its_key():
  search, tables = searcher(SAMPLING, GROUPS), factored_tables(0)
  first, *others = (search(tables, seed) for seed in range(4))
  assert first.tree.embeddings.keys is None
  assert any(np.asarray(x.sampled_actions != first.sampled_actions).any() for x in others)


def test_keys_are_those_of_the_row():
  rows = np.random.default_rng(0).normal(size=(500, 2, 3)).astype(np.float32)
  keys = np.asarray(KEYS(rows))
  assert len(np.unique(keys, axis=0)) == 500
  np.testing.assert_array_equal(KEYS(rows[[7, 3]]), keys[[7, 3]])
  bits = (np.arange(64)[:, None] >> np.arange(6) & 1).astype(np.float32)
  assert len(np.unique(KEYS(bits), axis=0)) == 64


def test_samples_by_rows_have_the_policys_probabilities():
  """Frames that differ in one number, as those of consecutive steps."""
  frames = np.zeros((20_000, 4), np.float32)
  frames[:, 2] = np.arange(20_000)
  logits = np.tile(np.float32(LOGITS), (len(frames), 1))
  actions, _ = fast_jit(lambda x, p: sample_actions(keys_of(x), p, GROUPS, 1))(frames, logits)
  frequency = np.bincount(np.asarray(actions)[:, 0], minlength=7)[1:] / len(frames)
  np.testing.assert_allclose(frequency, np.exp(joint_log_probs(LOGITS[None])[0]), atol=0.01)


SAMPLE = fast_jit(sample_actions, static_argnums=(2, 3))
KEYS = fast_jit(keys_of)


def draws(logits, num_samples, count=40_000, groups=GROUPS):
  """Draws `count` times from the policy of `logits` [P]; returns (actions, weights p / q)."""
  logits = np.tile(np.float32(logits), (count, 1))
  actions, log_weights = SAMPLE(jax.random.PRNGKey(0), logits, groups, num_samples)
  return np.asarray(actions), np.exp(np.asarray(log_weights, np.float64))


LOGITS = np.array([0.0, 0.5, -1.0, 1.0, 0.0, -2.0])


def test_samples_are_different():
  actions, _ = draws(LOGITS, 4)
  assert all(len(set(row)) == 4 for row in actions.tolist())


def test_one_sample_has_the_policys_probabilities():
  actions, _ = draws(LOGITS, 1)
  frequency = np.bincount(actions[:, 0], minlength=7)[1:] / len(actions)
  np.testing.assert_allclose(frequency, np.exp(joint_log_probs(LOGITS[None])[0]), atol=0.01)


@pytest.mark.parametrize("num_samples", [2, 4])
def test_weighted_sums_are_unbiased(num_samples):
  """The mean of the weighted sums of any function is its mean under the policy, here for each action."""
  actions, weights = draws(LOGITS, num_samples)
  total = np.bincount(actions.ravel(), weights.ravel(), minlength=7)[1:] / len(actions)
  np.testing.assert_allclose(total, np.exp(joint_log_probs(LOGITS[None])[0]), atol=0.015)


def test_the_first_samples_are_draws_without_replacement():
  """Drawn one after the other, from the actions that are left."""
  actions, _ = draws(LOGITS, 2)
  p = np.exp(joint_log_probs(LOGITS[None])[0])
  pairs = np.zeros((6, 6))
  np.add.at(pairs, tuple(actions.T - 1), 1 / len(actions))
  want = p[:, None] * p[None] / (1 - p[:, None])
  np.fill_diagonal(want, 0)
  np.testing.assert_allclose(pairs, want, atol=0.01)


def test_certain_policies_are_finite():
  logits = np.array([0.0, 80.0, -80.0, 80.0, -80.0, -80.0])
  actions, weights = draws(logits, 4)
  assert (actions[:, 0] == 1).all()
  assert np.isfinite(weights).all()
  assert weights[:, 0] == pytest.approx(1.0)
  assert (weights[:, 1:] < 1e-6).all()


def test_effective_number():
  rows = [[0.0] * 4, [100.0, 0.0, 0.0, 0.0], [-5.0, 100.0, 100.0, -5.0]]
  found = fast_jit(effective_number)(np.log(0.3) + np.array(rows))
  np.testing.assert_allclose(found, [4, 1, 2], rtol=1e-5)


@pytest.mark.parametrize(
  ("logits", "want"), [([0.0] * 6, 4), ([0.0, 100, 0, 0, 0, 0], 3), ([0.0, 100, 0, 100, 0, 0], 1)]
)
def test_effective_number_of_samples(logits, want):
  """Four samples of a uniform policy, of one that is certain in a dimension, and of one that is in both."""
  actions, weights = SAMPLE(jax.random.PRNGKey(0), np.float32([logits] * 8), GROUPS, 4)
  assert actions.shape == (8, 4)
  np.testing.assert_allclose(fast_jit(effective_number)(weights), want, rtol=1e-4)


def test_many_dimensions():
  groups = (1, *[7] * 11)
  logits = np.zeros(sum(groups))
  logits[1::7] = 4.0
  actions, weights = draws(logits, 16, 8, groups)
  assert (actions >= 1).all()
  assert (actions <= 7**11).all()
  assert np.isfinite(weights).all()
