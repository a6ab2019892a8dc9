"""Sampled joint actions: the edges of a search where joint actions have no entries of their own.

Each node has K joint actions, drawn without replacement from the network's policy. Their logits are those of
the policy, corrected by the probability that the draw includes them; with K = all actions they are the
policy's own, and the search is the enumerated one.

In a search without noise, a node's samples depend only on the network's input at the root, the actions from
the root to the node, and the node's policy.

Source: Hubert et al. 2021, Learning and Planning in Complex Action Spaces; Kool et al. 2019, Stochastic Beams
  and Where to Find Them, for draws without replacement and their importance weights. Departure from Hubert et
  al.: they draw samples with replacement, and correct by a sample's frequency divided by its probability.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Int32, UInt32

from moozi.core.pytree import record
from moozi.ops.actions import Groups, actions_of_rows, split_groups
from moozi.ops.policy import log_policy, policy_entropy

_LARGEST_LOG = 50.0  # of an expected count: from there on the draw includes the action with certainty
_SMALL = 1e-4


@record
class SampledNode:
  """The embedding of a node whose edges are sampled.

  Attributes:
    state: the hidden state.
    actions: the joint action of each edge, in the agent's action space.
    keys: one random key for each root's node; None: the search's own key draws the samples.
  """

  state: Any
  actions: Int32[Array, "B K"]
  keys: UInt32[Array, "B 2"] | None


def keys_of(x: Float[Array, "B *entries"]) -> UInt32[Array, "B 2"]:
  """Returns a random key for each row, which depends only on the bits of the row."""
  words = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32).reshape(len(x), -1)
  places = _mixed(jnp.arange(1, words.shape[1] + 1, dtype=jnp.uint32))
  # Sums of integers do not depend on their order.
  return jax.vmap(jax.random.PRNGKey)(jnp.sum(_mixed(words ^ places), axis=1, dtype=jnp.uint32))


def _mixed(x: UInt32[Array, "*batch"]) -> UInt32[Array, "*batch"]:
  """Returns a hash of each integer. Source: the finalizer of MurmurHash3. Departures: none."""
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
    x = (x ^ (x >> shift)) * jnp.uint32(factor)
  return x ^ (x >> 16)


def sample_actions(
  rng_key: Array, logits: Float[Array, "B P"], groups: Groups, num_samples: int
) -> tuple[Int32[Array, "B K"], Float[Array, "B K"]]:
  """Draws K different joint actions from each policy.

  K is `num_samples`, or the number of joint actions if that is less.

  Args:
    rng_key: one key for all rows, or [B, 2], one for each; a row's draw then does not depend on other rows.

  Returns: the actions, in the agent's action space, and their logits log (p / q). p is the action's
    probability. q is the probability that the draw includes the action, given the largest perturbed log
    probability outside the draw. For any f of an action, Σ f·p/q over the K is an unbiased estimate of Σ f·p
    over all actions.
  """
  if rng_key.ndim == 2:

    def draw(key: Array, row: Float[Array, "P"]) -> tuple[Int32[Array, "K"], Float[Array, "K"]]:
      actions, weights = sample_actions(key, row[None], groups, num_samples)
      return actions[0], weights[0]

    return jax.vmap(draw)(rng_key, logits)
  log_probs = list(split_groups(log_policy(logits, groups), groups))
  keys = jax.random.split(rng_key, len(log_probs) + 1)
  batch, dtype = logits.shape[0], logits.dtype
  # A beam search over the dimensions, for the K + 1 largest Gumbel-perturbed log probabilities.
  log_p, perturbed = jnp.zeros((batch, 1), dtype), jax.random.gumbel(keys[0], (batch, 1), dtype)
  rows = jnp.zeros((batch, 1, 0), jnp.int32)
  for key, group in zip(keys[1:], log_probs, strict=True):
    size = group.shape[-1]
    child_log_p = log_p[..., None] + group[:, None]
    child = _given_maximum(
      child_log_p + jax.random.gumbel(key, child_log_p.shape, dtype), perturbed[..., None]
    )
    width = min(num_samples + 1, child.shape[1] * size)
    perturbed, index = jax.lax.top_k(child.reshape(batch, -1), width)
    log_p = jnp.take_along_axis(child_log_p.reshape(batch, -1), index, axis=1)
    parents = jnp.take_along_axis(rows, (index // size)[..., None], axis=1)
    rows = jnp.concatenate([parents, (index % size)[..., None].astype(jnp.int32)], axis=-1)
  actions = actions_of_rows(rows, groups).astype(jnp.int32)
  if actions.shape[1] <= num_samples:
    return actions, log_p
  log_count = log_p[:, :num_samples] - perturbed[:, num_samples:]
  return actions[:, :num_samples], log_p[:, :num_samples] - _log_inclusion(log_count)


def _given_maximum(perturbed: Float[Array, "B M S"], maximum: Float[Array, "B M 1"]) -> Float[Array, "B M S"]:
  """Returns Gumbel-perturbed log probabilities of children, given that their maximum is that of the parent.

  Source: Kool et al. 2019, appendix B.3. Departures: none.
  """
  largest = jnp.max(perturbed, axis=-1, keepdims=True)
  # Where a child is the largest, log(1 - exp(0)) is -inf, and the child gets the maximum.
  v = maximum - perturbed + jnp.log1p(-jnp.exp(perturbed - largest))
  return maximum - jnp.maximum(v, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(v)))


def _log_inclusion(log_count: Float[Array, "B K"]) -> Float[Array, "B K"]:
  """Returns log (1 - exp(-exp(x))), also where exp(x) underflows."""
  count = jnp.exp(jnp.minimum(log_count, _LARGEST_LOG))
  safe = jnp.maximum(count, _SMALL)
  return jnp.where(count < _SMALL, log_count, jnp.log(-jnp.expm1(-safe)))


def effective_number(logits: Float[Array, "B K"]) -> Float[Array, "B"]:
  """Returns the exponential of the entropy of each row's softmax: K if uniform, 1 if certain."""
  return jnp.exp(policy_entropy(jax.nn.log_softmax(logits, axis=-1)))


def with_samples(recurrent_fn: Any, groups: Groups, num_samples: int) -> Callable[..., Any]:
  """Returns mctx's recurrent function for edges that are sampled; an embedding is a `SampledNode`.

  Args:
    recurrent_fn: mctx's recurrent function of joint actions; its `prior_logits` are the policy's, [B, P].
  """

  def sampled(
    variables: Any, rng_key: Array, edge: Int[Array, "B"], node: SampledNode
  ) -> tuple[Any, SampledNode]:
    action = jnp.take_along_axis(node.actions, edge[:, None], axis=1)[:, 0]
    output, state = recurrent_fn(variables, rng_key, action, node.state)
    keys = None if node.keys is None else jax.vmap(jax.random.fold_in)(node.keys, action)
    key = rng_key if keys is None else keys
    actions, logits = sample_actions(key, output.prior_logits, groups, num_samples)
    return output.replace(prior_logits=logits), SampledNode(state=state, actions=actions, keys=keys)

  return sampled
