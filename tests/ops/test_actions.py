"""Tests of actions as entries of a policy, and of policies with several groups."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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

ONE, GROUPS = (4,), (1, 2, 3, 2)
ROWS = np.array(list(itertools.product(range(2), range(3), range(2))))
LOGITS = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
LEGAL = np.array([[False, *[True] * 7]] * 5)


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax.numpy"])
def test_joint_actions_are_numbered_by_their_rows(xp):
  assert num_actions(GROUPS) == 13
  np.testing.assert_array_equal(actions_of_rows(xp.asarray(ROWS), GROUPS), range(1, 13))
  np.testing.assert_array_equal(action_rows(xp.arange(1, 13), GROUPS), ROWS)


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax.numpy"])
def test_codes_have_an_entry_in_each_dimension(xp):
  np.testing.assert_array_equal(encode_action(xp.arange(4), ONE), np.eye(4))
  codes = np.asarray(encode_action(xp.arange(13), GROUPS))
  np.testing.assert_array_equal(codes[0], [1, 0, 0, 0, 0, 0, 0, 0])
  assert codes[:, 0].tolist() == [1, *[0] * 12]
  for row, code in zip(ROWS, codes[1:], strict=True):
    assert code[[1 + row[0], 3 + row[1], 6 + row[2]]].tolist() == [1, 1, 1]
    assert code.sum() == 3


def joint_log_probs(logits):
  parts = [np.asarray(jax.nn.log_softmax(logits[:, a:b])) for a, b in ((1, 3), (3, 6), (6, 8))]
  return np.stack([sum(part[:, i] for part, i in zip(parts, row, strict=True)) for row in ROWS], axis=1)


def test_a_joint_action_has_the_product_of_probabilities():
  log_probs = masked_log_probs(LOGITS, LEGAL, GROUPS)
  want = joint_log_probs(LOGITS)
  for action in range(1, 13):
    got = log_prob_of(log_probs, np.full(5, action), GROUPS)
    np.testing.assert_allclose(got, want[:, action - 1], rtol=1e-5)
  np.testing.assert_array_equal(log_prob_of(log_probs, np.zeros(5, int), GROUPS), 0)
  entropy = -(np.exp(want) * want).sum(axis=1)
  np.testing.assert_allclose(policy_entropy(log_probs, LEGAL), entropy, rtol=1e-5)
  probs = policy_probs(LOGITS, LEGAL, GROUPS)
  np.testing.assert_array_equal(most_probable(probs, GROUPS), want.argmax(axis=1) + 1)
  np.testing.assert_array_equal(probs[:, 0], 0)


def test_marginals_give_the_cross_entropy_of_a_target_over_joint_actions():
  weights = np.random.default_rng(1).dirichlet(np.ones(12), 5).astype(np.float32)
  marginals = weights @ encode_action(np.arange(1, 13), GROUPS)
  want = -(weights * joint_log_probs(LOGITS)).sum(axis=1)
  np.testing.assert_allclose(policy_cross_entropy(LOGITS, marginals, GROUPS), want, rtol=1e-5)


def test_a_target_of_the_dummy_has_no_gradient():
  dummy = np.eye(8, dtype=np.float32)[[0]]
  loss, gradient = jax.value_and_grad(lambda x: policy_cross_entropy(x, dummy, GROUPS).sum())(LOGITS[:1])
  assert loss == 0
  np.testing.assert_array_equal(gradient, 0)


def test_draws_follow_the_policy():
  logits = np.repeat(LOGITS[:1], 20_000, axis=0)
  legal = np.repeat(LEGAL[:1], 20_000, axis=0)
  drawn, _ = draw_action(logits, legal, jax.random.PRNGKey(0), 1.0, GROUPS)
  frequency = np.bincount(drawn, minlength=13)[1:] / len(logits)
  np.testing.assert_allclose(frequency, np.exp(joint_log_probs(LOGITS[:1])[0]), atol=0.01)
  greedy, _ = draw_action(LOGITS, LEGAL, jax.random.PRNGKey(0), 0.0, GROUPS)
  np.testing.assert_array_equal(greedy, joint_log_probs(LOGITS).argmax(axis=1) + 1)
  uniform = np.bincount(random_actions(jax.random.PRNGKey(1), legal, GROUPS), minlength=13)
  assert uniform[0] == 0
  np.testing.assert_allclose(uniform[1:] / len(logits), 1 / 12, atol=0.01)


def test_sums_of_each_group():
  probs = np.array([[0, 0.5, 0.5, 0.2, 0.3, 0.5, 1, 0], [1, 0, 0, 0, 0, 0, 0, 0]], np.float32)
  np.testing.assert_allclose(group_sums(probs, GROUPS), np.ones((3, 2)))
  np.testing.assert_allclose(group_sums(probs[:, :4], ONE), [[1.2, 1.0]])


def test_probabilities_of_joint_actions():
  probs = np.asarray(policy_probs(jnp.asarray(LOGITS), LEGAL, GROUPS))
  actions = np.tile(np.arange(13), (5, 1))
  want = [
    [np.prod([probs[b, 1 + i], probs[b, 3 + j], probs[b, 6 + k]]) for i, j, k in ROWS] for b in range(5)
  ]
  np.testing.assert_allclose(joint_probs(probs, actions, GROUPS)[:, 1:], want, rtol=1e-5)
  assert (joint_probs(probs, actions, GROUPS)[:, 0] == 0).all()


def test_most_probable_joint_actions():
  for probs in np.asarray(policy_probs(jnp.asarray(LOGITS), LEGAL, GROUPS)):
    every = joint_probs(probs, np.arange(1, 13), GROUPS)
    for num in (1, 3, 12, 20):
      actions, weights = top_actions(probs, GROUPS, num)
      np.testing.assert_array_equal(actions, 1 + np.sort(np.argsort(-every)[:num]))
      np.testing.assert_allclose(weights, every[actions - 1], rtol=1e-5)
