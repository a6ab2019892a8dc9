"""Reads trees of mctx: depth, completed Q-values, probabilities of outcomes, and plain copies of trees."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Int32, Num

from moozi.agent.sampled import SampledNode
from moozi.core.search_record import SearchTree


def plain_tree(tree: Any) -> SearchTree:
  """Returns the tree of a `SearchOutput` as plain arrays [B, N], with N = num_simulations + 1.

  Unused nodes have 0 visits: a search that reaches `max_depth` expands fewer nodes. The priors at the root
  are over the legal actions, with `root_prior_temperature`, and with Dirichlet noise if there is any. With
  sampled joint actions, a prior is the corrected one, over the samples.
  """
  lane = jnp.arange(tree.parents.shape[0])[:, None]
  parent = tree.parents
  is_child = parent >= 0
  above, edge = jnp.maximum(parent, 0), jnp.maximum(tree.action_from_parent, 0)
  if has_chance(tree):
    # mctx drops the edges of chance nodes from its tree, so the embeddings store them (`_make_chance_fns`).
    is_chance = ~tree.embeddings.is_decision_node & (tree.node_visits > 0)
    num_actions = tree.num_actions
    _, reward = tree.embeddings.state_embedding
    chance_logits = tree.embeddings.afterstate_embedding[1]
    is_outcome = is_child & is_chance[lane, above]
    code = jnp.where(is_outcome, edge - num_actions, 0)
    action = jnp.where(is_outcome, 0, edge)
    chance_prior = jax.nn.softmax(chance_logits)[lane, above, code]
    prior = jax.nn.softmax(tree.children_prior_logits)[lane, above, action]
    prior = jnp.where(is_outcome, chance_prior, prior)
    reward = jnp.where(is_outcome, reward, 0.0)
    edge = jnp.where(is_outcome, code, action)
  else:
    is_chance = jnp.zeros(parent.shape, bool)
    prior = jax.nn.softmax(tree.children_prior_logits)[lane, above, edge]
    reward = tree.children_rewards[lane, above, edge]
    if isinstance(tree.embeddings, SampledNode):
      edge = tree.embeddings.actions[lane, above, edge]

  def set_depth(node: Int[Array, ""], depth: Int32[Array, "B N"]) -> Int32[Array, "B N"]:
    above = jnp.take_along_axis(depth, jnp.maximum(parent[:, node], 0)[:, None], axis=1)[:, 0]
    return depth.at[:, node].set(jnp.where(is_child[:, node], above + 1, 0))

  return SearchTree(
    parent=parent.astype(jnp.int32),
    action=jnp.where(is_child, edge, -1).astype(jnp.int32),
    depth=jax.lax.fori_loop(1, parent.shape[1], set_depth, jnp.zeros(parent.shape, jnp.int32)),
    visits=tree.node_visits.astype(jnp.int32),
    value=tree.node_values,
    raw_value=tree.raw_values,
    reward=jnp.where(is_child, reward, 0.0),
    prior=jnp.where(is_child, prior, 1.0),
    is_chance=is_chance,
  )


def root_state(tree: Any) -> Any:
  """Returns the embeddings of the roots of a `SearchOutput`'s tree: hidden states, or a RulesNode."""
  if has_chance(tree):
    return tree.embeddings.state_embedding[0][:, 0]
  is_sampled = isinstance(tree.embeddings, SampledNode)
  return jax.tree.map(lambda x: x[:, 0], tree.embeddings.state if is_sampled else tree.embeddings)


def has_chance(tree: Any) -> bool:
  """Returns whether a search with chance nodes made the tree."""
  return hasattr(tree.embeddings, "is_decision_node")


def chance_probs(tree: Any) -> Float[Array, "B A N"]:
  """Returns the code probabilities of the root's afterstates; see `SearchOutput.chance_probs`."""
  logits = tree.embeddings.afterstate_embedding[1]
  child = tree.children_index[:, 0]
  probs = jax.nn.softmax(jnp.take_along_axis(logits, jnp.maximum(child, 0)[..., None], axis=1))
  return jnp.where(child[..., None] >= 0, probs, 0.0)


def search_depth(tree: Any) -> tuple[Float[Array, "B"], Int[Array, "B"]]:
  """Returns the mean and the maximum depth at which the simulations ended."""
  # A simulation visits each node of its path once, so its depth is its number of visits below the root.
  visits_below_root = jnp.sum(tree.node_visits, axis=-1) - tree.node_visits[:, 0]
  num_simulations = tree.node_visits.shape[1] - 1
  # Pointer doubling: a few gathers instead of a loop over the nodes.
  above = tree.parents
  depth = (above >= 0).astype(jnp.int32)
  for _ in range((num_simulations - 1).bit_length()):
    further = jnp.maximum(above, 0)
    depth = depth + jnp.take_along_axis(depth, further, axis=1)
    above = jnp.take_along_axis(above, further, axis=1)
  return visits_below_root / num_simulations, jnp.max(depth, axis=-1)


def complete_q_values(
  q_values: Float[Array, "B A"],
  visit_counts: Num[Array, "B A"],
  prior_probs: Float[Array, "B A"],
  raw_value: Float[Array, "B"],
) -> Float[Array, "B A"]:
  """Returns the completed Q-values: q, or the mixed value v_mix where an action has no visit.

  v_mix = (v̂ + ΣN · Σ_visited π q / Σ_visited π) / (1 + ΣN)

  Source: Danihelka et al. 2022, appendix D. Departures: none.
  """
  visited = visit_counts > 0
  weights = jnp.where(visited, jnp.maximum(prior_probs, jnp.finfo(prior_probs.dtype).tiny), 0.0)
  # The floor of the weights (`tiny`) avoids 0/0 where every visited action has prior 0.
  mean_q = jnp.sum(weights * q_values, axis=-1) / jnp.maximum(jnp.sum(weights, axis=-1), 1e-30)
  total = jnp.sum(visit_counts, axis=-1)
  mixed = (raw_value + total * mean_q) / (1.0 + total)
  return jnp.where(visited, q_values, mixed[:, None])
