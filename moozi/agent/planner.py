"""Planning with the learned model. The only place that knows mctx."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mctx

from moozi.core.config import PlannerConfig
from moozi.core.pytree import record
from moozi.core.search_record import SearchTree
from moozi.nn.model import Model, NetState, Params
from moozi.ops.players import search_discount

Array = Any


@record
class PlannerOutput:
  """What one search of B roots says.

  Attributes:
    action: [B] int32 in the agent's action space; always a legal one.
    action_probs: [B, A] float32, the search policy; exactly 0 on illegal actions.
    root_value: [B] float32, env units, for the player to move.
    prior_probs: [B, A] float32, the network's policy over the legal actions, without noise.
    prior_value: [B] float32, env units, the network's value.
    q_values: [B, A] float32, env units; actions that were not visited have the mixed value.
    depth_mean: [B] float32, moves from the root to where a simulation ended, mean over the simulations.
    depth_max: [B] int32, of the deepest.
    tree: the search tree (mctx's Tree, embeddings and all) where asked for, else None.
  """

  action: Array
  action_probs: Array
  root_value: Array
  prior_probs: Array
  prior_value: Array
  q_values: Array
  depth_mean: Array
  depth_max: Array
  tree: Any = None


def plan(
  model: Model,
  config: PlannerConfig,
  discount: float,
  num_players: int,
  params: Params,
  net_state: NetState,
  rng_key: Array,
  stacked_history: Array,
  legal_actions_mask: Array,
  temperature: Array | float,
  with_tree: bool = False,
) -> PlannerOutput:
  """One search from each root: root inference, `num_simulations` simulations, an action.

  With puct the action is drawn from visit counts to the power 1/temperature (0: the most visited, the prior
  breaks ties);
  gumbel chooses by itself and its only noise is `gumbel_scale`. Illegal actions are masked at the root only:
  inside, the model has learned what is worth nothing.

  Args:
    model, config, num_players, with_tree: static.
    discount: γ; the sign between two players is made here.
    rng_key: consumed.
    stacked_history: [B, H, W, L·(C + A)] float32.
    legal_actions_mask: [B, A] bool, at least one in each row; a row with only the dummy gives the dummy.
    temperature: [] or [B] float32, ≥ 0; read by puct.

  Source: Schrittwieser et al. 2020 (puct); Danihelka et al. 2022 (gumbel); the thesis 4.3.5. Departures:
    `q_range_floor` bounds from below the range that Q-values are scaled by.
  """
  output, _ = model.root_inference(params, net_state, stacked_history, False)
  prior_value = model.transform.to_scalar(output.value_logits)
  root = mctx.RootFnOutput(
    prior_logits=output.policy_logits, value=prior_value, embedding=output.hidden_state
  )
  search = _puct if config.algorithm == "puct" else _gumbel
  policy_output = search(
    config,
    params=(params, net_state),
    rng_key=rng_key,
    root=root,
    recurrent_fn=_make_recurrent_fn(model, search_discount(discount, num_players)),
    invalid_actions=1.0 - legal_actions_mask.astype(jnp.float32),
    temperature=jnp.asarray(temperature, jnp.float32),
  )
  tree = policy_output.search_tree
  summary = tree.summary()
  prior_probs = jax.nn.softmax(output.policy_logits, where=legal_actions_mask)
  action_probs = jnp.where(legal_actions_mask, policy_output.action_weights, 0.0)
  action = policy_output.action
  if config.algorithm == "puct":
    # At temperature 0 mctx draws among the most visited by the key; here the prior breaks the tie.
    visits = jnp.where(legal_actions_mask, summary.visit_counts + 0.5 * prior_probs, -1.0)
    is_greedy = jnp.broadcast_to(jnp.asarray(temperature) == 0, action.shape)
    action = jnp.where(is_greedy, jnp.argmax(visits, axis=-1), action)
  q_values = _complete(summary.qvalues, summary.visit_counts, prior_probs, prior_value)
  improved = jnp.sum(action_probs * q_values, axis=-1)
  depth_mean, depth_max = _search_depth(tree)
  return PlannerOutput(
    action=action.astype(jnp.int32),
    action_probs=action_probs,
    root_value=improved if config.root_value == "improved" else summary.value,
    prior_probs=prior_probs,
    prior_value=prior_value,
    q_values=q_values,
    depth_mean=depth_mean,
    depth_max=depth_max,
    tree=tree if with_tree else None,
  )


def plain_tree(tree: Any) -> SearchTree:
  """The tree of a `PlannerOutput` as plain arrays [B, N], N = num_simulations + 1.

  Nodes that were never made (a search that met `max_depth` makes fewer) have 0 visits. Priors at the root are
  those that the search went by: over the legal actions, with Dirichlet noise where there is any.
  """
  lane = jnp.arange(tree.parents.shape[0])[:, None]
  parent = tree.parents
  is_child = parent >= 0
  edge = (lane, jnp.maximum(parent, 0), jnp.maximum(tree.action_from_parent, 0))
  prior = jax.nn.softmax(tree.children_prior_logits)[edge]

  def deepen(node: Array, depth: Array) -> Array:
    above = jnp.take_along_axis(depth, jnp.maximum(parent[:, node], 0)[:, None], axis=1)[:, 0]
    return depth.at[:, node].set(jnp.where(is_child[:, node], above + 1, 0))

  return SearchTree(
    parent=parent.astype(jnp.int32),
    action=jnp.where(is_child, tree.action_from_parent, -1).astype(jnp.int32),
    depth=jax.lax.fori_loop(1, parent.shape[1], deepen, jnp.zeros(parent.shape, jnp.int32)),
    visits=tree.node_visits.astype(jnp.int32),
    value=tree.node_values,
    raw_value=tree.raw_values,
    reward=jnp.where(is_child, tree.children_rewards[edge], 0.0),
    prior=jnp.where(is_child, prior, 1.0),
  )


def root_state(tree: Any) -> Array:
  """The hidden states, [B, …], that the searches of a `PlannerOutput`'s tree began from."""
  return tree.embeddings[:, 0]


def _make_recurrent_fn(model: Model, signed_discount: float) -> Any:
  """One edge and its child, as mctx wants it; scalars in env units."""

  def recurrent_fn(variables: Any, rng_key: Array, action: Array, hidden_state: Array) -> tuple[Any, Array]:
    del rng_key  # the model is deterministic
    params, net_state = variables
    output, _ = model.recurrent_inference(params, net_state, hidden_state, action, False)
    value = model.transform.to_scalar(output.value_logits)
    edge = mctx.RecurrentFnOutput(
      reward=model.transform.to_scalar(output.reward_logits),
      discount=jnp.full_like(value, signed_discount),
      prior_logits=output.policy_logits,
      value=value,
    )
    return edge, output.hidden_state

  return recurrent_fn


def _puct(config: PlannerConfig, *, temperature: Array, **kwargs: Any) -> Any:
  return mctx.muzero_policy(
    **kwargs,
    num_simulations=config.num_simulations,
    max_depth=config.max_depth,
    qtransform=functools.partial(mctx.qtransform_by_parent_and_siblings, epsilon=config.q_range_floor),
    dirichlet_fraction=config.dirichlet_fraction,
    dirichlet_alpha=config.dirichlet_alpha,
    pb_c_init=config.pb_c_init,
    pb_c_base=config.pb_c_base,
    temperature=temperature[:, None] if temperature.ndim else temperature,
  )


def _gumbel(config: PlannerConfig, *, temperature: Array, **kwargs: Any) -> Any:
  del temperature  # gumbel chooses by its own noise
  return mctx.gumbel_muzero_policy(
    **kwargs,
    num_simulations=config.num_simulations,
    max_depth=config.max_depth,
    qtransform=functools.partial(
      mctx.qtransform_completed_by_mix_value,
      value_scale=config.gumbel_value_scale,
      maxvisit_init=config.gumbel_maxvisit_init,
      epsilon=config.q_range_floor,
    ),
    max_num_considered_actions=config.max_num_considered_actions,
    gumbel_scale=config.gumbel_scale,
  )


def _search_depth(tree: Any) -> tuple[Array, Array]:
  """How far a tree's simulations went from the root: their mean [B] float32, and the farthest [B] int32."""
  # A simulation visits each node on its way once, where it ends too: its depth is its visits below the root.
  visits_below_root = jnp.sum(tree.node_visits, axis=-1) - tree.node_visits[:, 0]
  num_simulations = tree.node_visits.shape[1] - 1
  # Depths by doubling: a few gathers in place of a walk through the nodes one by one.
  above = tree.parents
  depth = (above >= 0).astype(jnp.int32)
  for _ in range((num_simulations - 1).bit_length()):
    further = jnp.maximum(above, 0)
    depth = depth + jnp.take_along_axis(depth, further, axis=1)
    above = jnp.take_along_axis(above, further, axis=1)
  return visits_below_root / num_simulations, jnp.max(depth, axis=-1)


def _complete(q_values: Array, visit_counts: Array, prior_probs: Array, raw_value: Array) -> Array:
  """Q-values with the mixed value where there was no visit, all [B, A] but raw_value [B].

  Source: Danihelka et al. 2022, appendix D. Departures: none.
  """
  visited = visit_counts > 0
  weights = jnp.where(visited, jnp.maximum(prior_probs, jnp.finfo(prior_probs.dtype).tiny), 0.0)
  # the tiny floor keeps 0/0 away where every visited action has prior 0
  mean_q = jnp.sum(weights * q_values, axis=-1) / jnp.maximum(jnp.sum(weights, axis=-1), 1e-30)
  total = jnp.sum(visit_counts, axis=-1)
  mixed = (raw_value + total * mean_q) / (1.0 + total)
  return jnp.where(visited, q_values, mixed[:, None])
