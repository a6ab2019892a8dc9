"""Tests of actions as entries of a policy, and of policies with several groups."""

import itertools

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from moozi.ops.actions import (
  action_rows,
  actions_of_rows,
  encode_action,
  group_sums,
  joint_probs,
  num_actions,
  top_actions,
)
from moozi.ops.policy import (
  draw_action,
  log_prob_of,
  masked_log_probs,
  most_probable,
  policy_cross_entropy,
  policy_entropy,
  policy_probs,
  random_actions,
)
from tests.fast_jit import fast_jit, on_numpy

ONE, GROUPS = (4,), (1, 2, 3, 2)
ROWS = np.array(list(itertools.product(range(2), range(3), range(2))))
LOGITS = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
LEGAL = np.array([[False, *[True] * 7]] * 5)
PROBS = fast_jit(policy_probs, static_argnums=2)


@pytest.mark.parametrize("run", [on_numpy, fast_jit], ids=["numpy", "jax.numpy"])
def test_joint_actions_are_numbered_by_their_rows(run):
  assert num_actions(GROUPS) == 13
  np.testing.assert_array_equal(run(actions_of_rows, static_argnums=1)(ROWS, GROUPS), range(1, 13))
  np.testing.assert_array_equal(run(action_rows, static_argnums=1)(np.arange(1, 13), GROUPS), ROWS)


@pytest.mark.parametrize("run", [on_numpy, fast_jit], ids=["numpy", "jax.numpy"])
def test_codes_have_an_entry_in_each_dimension(run):
  encode = run(encode_action, static_argnums=1)
  np.testing.assert_array_equal(encode(np.arange(4), ONE), np.eye(4))
  codes = np.asarray(encode(np.arange(13), GROUPS))
  np.testing.assert_array_equal(codes[0], [1, 0, 0, 0, 0, 0, 0, 0])
  assert codes[:, 0].tolist() == [1, *[0] * 12]
  for row, code in zip(ROWS, codes[1:], strict=True):
    assert code[[1 + row[0], 3 + row[1], 6 + row[2]]].tolist() == [1, 1, 1]
    assert code.sum() == 3


def joint_log_probs(logits):
  parts = [log_softmax(logits[:, a:b], axis=-1) for a, b in ((1, 3), (3, 6), (6, 8))]
  return np.stack([sum(part[:, i] for part, i in zip(parts, row, strict=True)) for row in ROWS], axis=1)


def test_a_joint_action_has_the_product_of_probabilities():
  log_probs = fast_jit(masked_log_probs, static_argnums=2)(LOGITS, LEGAL, GROUPS)
  want, log_prob = joint_log_probs(LOGITS), fast_jit(log_prob_of, static_argnums=2)
  for action in range(1, 13):
    got = log_prob(log_probs, np.full(5, action), GROUPS)
    np.testing.assert_allclose(got, want[:, action - 1], rtol=1e-5)
  np.testing.assert_array_equal(log_prob(log_probs, np.zeros(5, int), GROUPS), 0)
  entropy = -(np.exp(want) * want).sum(axis=1)
  np.testing.assert_allclose(fast_jit(policy_entropy)(log_probs, LEGAL), entropy, rtol=1e-5)
  probs = PROBS(LOGITS, LEGAL, GROUPS)
  best = fast_jit(most_probable, static_argnums=1)(probs, GROUPS)
  np.testing.assert_array_equal(best, want.argmax(axis=1) + 1)
  np.testing.assert_array_equal(probs[:, 0], 0)


def test_marginals_give_the_cross_entropy_of_a_target_over_joint_actions():
  weights = np.random.default_rng(1).dirichlet(np.ones(12), 5).astype(np.float32)
  marginals = weights @ encode_action(np.arange(1, 13), GROUPS)
  want = -(weights * joint_log_probs(LOGITS)).sum(axis=1)
  got = fast_jit(policy_cross_entropy, static_argnums=2)(LOGITS, marginals, GROUPS)
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_target_of_the_dummy_has_no_gradient():
  dummy = np.eye(8, dtype=np.float32)[[0]]
  of_dummy = jax.value_and_grad(lambda x: policy_cross_entropy(x, dummy, GROUPS).sum())
  loss, gradient = fast_jit(of_dummy)(LOGITS[:1])
  assert loss == 0
  np.testing.assert_array_equal(gradient, 0)


def test_draws_follow_the_policy():
  logits = np.repeat(LOGITS[:1], 20_000, axis=0)
  legal = np.repeat(LEGAL[:1], 20_000, axis=0)
  draw = fast_jit(draw_action, static_argnums=4)
  drawn, _ = draw(logits, legal, jax.random.PRNGKey(0), 1.0, GROUPS)
  frequency = np.bincount(drawn, minlength=13)[1:] / len(logits)
  np.testing.assert_allclose(frequency, np.exp(joint_log_probs(LOGITS[:1])[0]), atol=0.01)
  greedy, _ = draw(LOGITS, LEGAL, jax.random.PRNGKey(0), 0.0, GROUPS)
  np.testing.assert_array_equal(greedy, joint_log_probs(LOGITS).argmax(axis=1) + 1)
  random = fast_jit(random_actions, static_argnums=2)(jax.random.PRNGKey(1), legal, GROUPS)
  uniform = np.bincount(random, minlength=13)
  assert uniform[0] == 0
  np.testing.assert_allclose(uniform[1:] / len(logits), 1 / 12, atol=0.01)


def test_sums_of_each_group():
  probs = np.array([[0, 0.5, 0.5, 0.2, 0.3, 0.5, 1, 0], [1, 0, 0, 0, 0, 0, 0, 0]], np.float32)
  np.testing.assert_allclose(group_sums(probs, GROUPS), np.ones((3, 2)))
  np.testing.assert_allclose(group_sums(probs[:, :4], ONE), [[1.2, 1.0]])


def test_probabilities_of_joint_actions():
  probs = np.asarray(PROBS(LOGITS, LEGAL, GROUPS))
  actions = np.tile(np.arange(13), (5, 1))
  want = [
    [np.prod([probs[b, 1 + i], probs[b, 3 + j], probs[b, 6 + k]]) for i, j, k in ROWS] for b in range(5)
  ]
  np.testing.assert_allclose(joint_probs(probs, actions, GROUPS)[:, 1:], want, rtol=1e-5)
  assert (joint_probs(probs, actions, GROUPS)[:, 0] == 0).all()


def test_most_probable_joint_actions():
  for probs in np.asarray(PROBS(LOGITS, LEGAL, GROUPS)):
    every = joint_probs(probs, np.arange(1, 13), GROUPS)
    for num in (1, 3, 12, 20):
      actions, weights = top_actions(probs, GROUPS, num)
      np.testing.assert_array_equal(actions, 1 + np.sort(np.argsort(-every)[:num]))
      np.testing.assert_allclose(weights, every[actions - 1], rtol=1e-5)
