"""Policies as logits: log probabilities, entropy, cross-entropy, and the choice of an action.

A policy's entries are in groups (`EnvSpec.policy_groups`), each of which has a distribution. With one group,
each action is an entry. With groups (1, n_1 … n_D), the first entry is the dummy, each dimension has a group,
and the policy is the product of D distributions. A target over joint actions is then kept as its D marginals:
the cross-entropy of a product of distributions depends on nothing else. With several groups, no joint action
is illegal.

`groups` None stands for one group.
"""

from typing import TypeGuard

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num
from optax.losses import softmax_cross_entropy

from moozi.core.types import AnyArray
from moozi.ops.actions import Groups, actions_of_rows, encode_action, num_actions, split_groups
from moozi.ops.xp import array_namespace


def has_groups(groups: Groups | None) -> TypeGuard[Groups]:
  """Returns whether the policy has more than one group."""
  return groups is not None and len(groups) > 1


def log_policy(logits: Float[AnyArray, "*batch P"], groups: Groups | None) -> Float[Array, "*batch P"]:
  """Returns log probabilities, each within its group, of all entries."""
  if has_groups(groups):
    parts = [jax.nn.log_softmax(x, axis=-1) for x in split_groups(logits, groups)]
    return jnp.concatenate([jnp.zeros_like(logits[..., :1]), *parts], axis=-1)
  return jax.nn.log_softmax(logits, axis=-1)


def masked_log_probs(
  logits: Float[AnyArray, "*batch P"],
  legal_actions_mask: Bool[AnyArray, "*batch P"],
  groups: Groups | None = None,
) -> Float[Array, "*batch P"]:
  """Returns log probabilities, each within its group.

  With one group, illegal actions have -inf, and each row must have at least one legal action.
  """
  if has_groups(groups):
    return log_policy(logits, groups)
  return jax.nn.log_softmax(jnp.where(legal_actions_mask, logits, -jnp.inf), axis=-1)


def policy_probs(
  logits: Float[AnyArray, "*batch P"], legal_actions_mask: Bool[AnyArray, "*batch P"], groups: Groups
) -> Float[Array, "*batch P"]:
  """Returns the probabilities of the entries, each within its group; 0 where the mask is false."""
  if has_groups(groups):
    return jnp.where(legal_actions_mask, jnp.exp(log_policy(logits, groups)), 0.0)
  return jax.nn.softmax(logits, where=legal_actions_mask)


def policy_cross_entropy(
  logits: Float[AnyArray, "*batch P"], target: Float[AnyArray, "*batch P"], groups: Groups
) -> Float[Array, "*batch"]:
  """Returns the cross-entropy of the policy with a target; with several groups, the sum over the groups.

  With several groups, a target of the dummy adds 0, so it does not train the dimensions.
  """
  if has_groups(groups):
    return -jnp.sum(target * log_policy(logits, groups), axis=-1)
  return softmax_cross_entropy(logits, target)


def policy_entropy(
  log_probs: Float[AnyArray, "*batch P"], legal_actions_mask: Bool[AnyArray, "*batch P"] | None = None
) -> Float[Array, "*batch"]:
  """Returns the entropy, in nats; with several groups, the sum over the groups.

  Args:
    legal_actions_mask: the entries that count; None: all. Needed if log probabilities of others are -inf.
  """
  if legal_actions_mask is None:
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
  # Masked before the product, because the gradient of the product would be NaN.
  finite = jnp.where(legal_actions_mask, log_probs, 0.0)
  return -jnp.sum(jnp.where(legal_actions_mask, jnp.exp(finite) * finite, 0.0), axis=-1)


def log_prob_of(
  log_probs: Float[AnyArray, "*batch P"], action: Int[AnyArray, "*batch"], groups: Groups | None = None
) -> Float[Array, "*batch"]:
  """Returns the log probability of actions; with several groups, the sum over dimensions, 0 for the dummy."""
  if has_groups(groups):
    return jnp.sum(jnp.asarray(encode_action(action, groups)) * log_probs, axis=-1)
  return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]


def draw_action(
  logits: Float[AnyArray, "B P"],
  legal_actions_mask: Bool[AnyArray, "B P"],
  rng_key: Array,
  temperature: Num[AnyArray, "*lanes"] | float,
  groups: Groups | None = None,
) -> tuple[Int[Array, "B"], Float[Array, "B P"]]:
  """Draws legal actions in proportion to probability^(1/temperature); at 0, takes the most probable.

  In a row with a logit that is not finite, all legal actions are equally probable.

  Returns: the actions, and the log probabilities at temperature 1, as `masked_log_probs`.
  """
  logits = jnp.where(jnp.isfinite(logits).all(axis=-1, keepdims=True), logits, 0.0)
  log_probs = masked_log_probs(logits, jnp.asarray(legal_actions_mask), groups)

  def draw(key: Array, x: Float[Array, "B _"]) -> Int[Array, "B"]:
    drawn = jax.random.categorical(key, x / jnp.maximum(temperature, 1e-6))
    return jnp.where(jnp.asarray(temperature) == 0, jnp.argmax(x, axis=-1), drawn)

  if has_groups(groups):
    keys = jax.random.split(rng_key, len(groups) - 1)
    rows = [draw(key, x) for key, x in zip(keys, split_groups(log_probs, groups), strict=True)]
    return actions_of_rows(jnp.stack(rows, axis=-1), groups), log_probs
  return draw(rng_key, log_probs), log_probs


def random_actions(
  rng_key: Array, legal_actions_mask: Bool[AnyArray, "B P"], groups: Groups
) -> Int[Array, "B"]:
  """Draws a legal action for each row, each with equal probability."""
  if has_groups(groups):
    return jax.random.randint(rng_key, legal_actions_mask.shape[:1], 1, num_actions(groups))
  return jax.random.categorical(rng_key, jnp.where(legal_actions_mask, 0.0, -jnp.inf))


def most_probable(probs: Float[AnyArray, "*batch P"], groups: Groups) -> Int[AnyArray, "*batch"]:
  """Returns the most probable action of each policy."""
  if not has_groups(groups):
    return probs.argmax(axis=-1)
  rows = [x.argmax(axis=-1) for x in split_groups(probs, groups)]
  return actions_of_rows(array_namespace(probs).stack(rows, axis=-1), groups)
