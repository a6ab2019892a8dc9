"""The searches by name: mctx's, Gumbel MuZero's with chance nodes, and users', whose output is checked."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import mctx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from moozi.core import plugins, user_code
from moozi.core.config import PlannerConfig
from moozi.core.errors import UserError
from moozi.core.pytree import record


class ChanceFns(NamedTuple):
  """The recurrent functions of `mctx.stochastic_muzero_policy`, for actions and for outcomes."""

  decision: Any
  chance: Any


def _puct(config: PlannerConfig, *, temperature: Float[Array, "*lanes"], **kwargs: Any) -> Any:
  return mctx.muzero_policy(**kwargs, **_puct_options(config, temperature))


def _stochastic(
  config: PlannerConfig,
  *,
  root: Any,
  recurrent_fn: ChanceFns,
  temperature: Float[Array, "*lanes"],
  **kwargs: Any,
) -> Any:
  return mctx.stochastic_muzero_policy(
    **kwargs,
    root=root.replace(embedding=(root.embedding, jnp.zeros_like(root.value))),
    decision_recurrent_fn=recurrent_fn.decision,
    chance_recurrent_fn=recurrent_fn.chance,
    **_puct_options(config, temperature),
  )


@record
class _NodeState:
  """The embedding of a node of `_stochastic_gumbel`; its fields are named as those of `_stochastic`.

  Attributes:
    state_embedding, afterstate_embedding: as `_make_chance_fns` has them; one of them is that of the node.
    is_decision_node: whether the node is a state.
  """

  state_embedding: Any
  afterstate_embedding: Any
  is_decision_node: Bool[Array, "B"]


def _stochastic_gumbel(
  config: PlannerConfig,
  *,
  params: Any,
  rng_key: Array,
  root: Any,
  recurrent_fn: ChanceFns,
  invalid_actions: Float[Array, "B A"],
  temperature: Float[Array, "*lanes"],
) -> Any:
  """Gumbel MuZero's search on a tree with chance nodes.

  A state has the edges 0 … A−1, its actions, and an afterstate the edges A … A+N−1, its outcomes, as in
  `mctx.stochastic_muzero_policy`. Actions are chosen as in `mctx.gumbel_muzero_policy`; the outcome with the
  largest p / (visits + 1) is chosen.

  Source: Danihelka et al. 2022; Antonoglou et al. 2022; Kao et al. 2022 combine them. Departures: none known.
  """
  del temperature  # the Gumbel noise alone randomizes the action
  batch, num_actions = root.prior_logits.shape
  transform = _completed_q_transform(config)
  state = (root.embedding, jnp.zeros_like(root.value))
  # Only its shapes count: the root is a state.
  first, after_state = recurrent_fn.decision(params, rng_key, jnp.zeros(batch, jnp.int32), state)
  num_codes = first.chance_logits.shape[-1]
  # As mctx masks the root: not -inf, because all actions of a root may be illegal.
  is_invalid = invalid_actions > 0
  masked = jnp.where(is_invalid, jnp.finfo(root.prior_logits.dtype).min, root.prior_logits)
  gumbel_key, search_key = jax.random.split(rng_key)
  gumbel = config.gumbel_scale * jax.random.gumbel(gumbel_key, masked.shape, masked.dtype)

  def pad(logits: Float[Array, "B E"], before: int, behind: int) -> Float[Array, "B _"]:
    return jnp.pad(logits, ((0, 0), (before, behind)), constant_values=-jnp.inf)

  def expand(variables: Any, key: Array, edge: Int[Array, "B"], node: _NodeState) -> tuple[Any, _NodeState]:
    action, after = recurrent_fn.decision(variables, key, edge, node.state_embedding)
    outcome, state = recurrent_fn.chance(variables, key, edge - num_actions, node.afterstate_embedding)
    to_afterstate = mctx.RecurrentFnOutput(
      prior_logits=pad(action.chance_logits, num_actions, 0),
      value=action.afterstate_value,
      reward=jnp.zeros_like(outcome.reward),
      discount=jnp.ones_like(outcome.discount),
    )
    to_state = mctx.RecurrentFnOutput(
      prior_logits=pad(outcome.action_logits, 0, num_codes),
      value=outcome.value,
      reward=outcome.reward,
      discount=outcome.discount,
    )
    is_state = node.is_decision_node
    edges = jax.tree.map(
      lambda x, y: jnp.where(is_state.reshape(-1, *[1] * (x.ndim - 1)), x, y), to_afterstate, to_state
    )
    return edges, _NodeState(state_embedding=state, afterstate_embedding=after, is_decision_node=~is_state)

  def select(choose: Any) -> Any:
    def choose_edge(key: Array, tree: Any, node: Array, *depth: Array) -> Array:
      action = choose(key, _action_edges(tree, num_actions), node, *depth)
      probs = jax.nn.softmax(tree.children_prior_logits[node, num_actions:])
      code = jnp.argmax(probs / (tree.children_visits[node, num_actions:] + 1))
      edge = jnp.where(tree.embeddings.is_decision_node[node], action, num_actions + code)
      return edge.astype(jnp.int32)

    return choose_edge

  choose_at_root = functools.partial(
    mctx.gumbel_muzero_root_action_selection,
    num_simulations=config.num_simulations,
    max_num_considered_actions=config.max_num_considered_actions,
    qtransform=transform,
  )
  choose_inside = functools.partial(mctx.gumbel_muzero_interior_action_selection, qtransform=transform)
  tree = mctx.search(
    params=params,
    rng_key=search_key,
    root=root.replace(
      prior_logits=pad(masked, 0, num_codes),
      embedding=_NodeState(
        state_embedding=state, afterstate_embedding=after_state, is_decision_node=jnp.ones(batch, bool)
      ),
    ),
    recurrent_fn=expand,
    root_action_selection_fn=select(choose_at_root),
    interior_action_selection_fn=select(choose_inside),
    num_simulations=config.num_simulations,
    max_depth=config.max_depth,
    invalid_actions=jnp.pad(invalid_actions, ((0, 0), (0, num_codes)), constant_values=1.0),
    extra_data=mctx.GumbelMuZeroExtraData(root_gumbel=gumbel),
  )
  tree = _action_edges(tree, num_actions)
  q_values = jax.vmap(transform, in_axes=(0, None))(tree, tree.ROOT_INDEX)
  improved = jnp.where(is_invalid, masked, masked + q_values)
  # The action is the best of the most visited ones.
  visits = tree.children_visits[:, tree.ROOT_INDEX]
  is_candidate = (visits == visits.max(axis=-1, keepdims=True)) & ~is_invalid
  return mctx.PolicyOutput(
    action=jnp.argmax(jnp.where(is_candidate, gumbel + improved, -jnp.inf), axis=-1),
    action_weights=jax.nn.softmax(improved),
    search_tree=tree,
  )


def _action_edges(tree: Any, num_actions: int) -> Any:
  """Returns the tree without the edges of outcomes."""
  children = ("index", "prior_logits", "visits", "rewards", "discounts", "values")
  names = (*(f"children_{name}" for name in children), "root_invalid_actions")
  return tree.replace(**{name: getattr(tree, name)[..., :num_actions] for name in names})


def _puct_options(config: PlannerConfig, temperature: Float[Array, "*lanes"]) -> dict[str, Any]:
  return {
    "num_simulations": config.num_simulations,
    "max_depth": config.max_depth,
    "qtransform": functools.partial(mctx.qtransform_by_parent_and_siblings, epsilon=config.q_range_floor),
    "dirichlet_fraction": config.dirichlet_fraction,
    "dirichlet_alpha": config.dirichlet_alpha,
    "pb_c_init": config.pb_c_init,
    "pb_c_base": config.pb_c_base,
    "temperature": temperature[:, None] if temperature.ndim else temperature,
  }


def _gumbel(config: PlannerConfig, *, temperature: Float[Array, "*lanes"], **kwargs: Any) -> Any:
  del temperature  # the Gumbel noise alone randomizes the action
  return mctx.gumbel_muzero_policy(
    **kwargs,
    num_simulations=config.num_simulations,
    max_depth=config.max_depth,
    qtransform=_completed_q_transform(config),
    max_num_considered_actions=config.max_num_considered_actions,
    gumbel_scale=config.gumbel_scale,
  )


def _completed_q_transform(config: PlannerConfig) -> Any:
  return functools.partial(
    mctx.qtransform_completed_by_mix_value,
    value_scale=config.gumbel_value_scale,
    maxvisit_init=config.gumbel_maxvisit_init,
    epsilon=config.q_range_floor,
  )


SEARCHES: dict[str, Callable[..., Any]] = {
  "puct": _puct,
  "gumbel": _gumbel,
  "stochastic": _stochastic,
  "stochastic_gumbel": _stochastic_gumbel,
}
"""The built-in searches, by value of `planners.*.algorithm`; `core.plugins.SEARCHES` has the user's."""


def find_search(config: PlannerConfig) -> Callable[..., Any]:
  """Returns the search that the configuration names: a built-in one, or the user's with checks."""
  return SEARCHES.get(config.algorithm) or _custom_search(plugins.SEARCHES.get(config.algorithm))


class SearchFunction(Protocol):
  """The interface of a user's search from B roots: that of an mctx policy, after the argument `config`."""

  def __call__(
    self,
    config: PlannerConfig,
    /,
    *,
    params: Any,
    rng_key: Array,
    root: Any,
    recurrent_fn: Any,
    invalid_actions: Float[Array, "B A"],
    temperature: Float[Array, "B 1"],
  ) -> Any:
    """Searches from each root; returns an `mctx.PolicyOutput` whose `search_tree` is an `mctx.Tree`.

    Args:
      config: the planner's section. Noise-free evaluation passes gumbel_scale 0, dirichlet_fraction 0 and
        temperature 0; the search must then have no noise.
      params: pass it to `recurrent_fn`.
      root: `mctx.RootFnOutput` with logits [B, A], values in env units, and embeddings: hidden states, or a
        RulesNode with algorithm=alphazero. With sampled joint actions, A is the number of samples, and the
        embedding is a SampledNode.
      recurrent_fn: `mctx.RecurrentFn`; its discount is γ, or −γ with two players; with true rules, 0 at a
        terminal node.
      invalid_actions: 1 where the action is illegal at the root, else 0; at least one action is legal.
      temperature: ≥ 0.
    """


def _check_tree(where: str, tree: mctx.Tree, batch: int, num_actions: int) -> None:
  """Raises UserError unless the arrays of a user's tree have the shapes of mctx."""
  nodes = (batch, *np.shape(tree.node_visits)[1:2])
  for name in ("node_visits", "raw_values", "node_values", "parents", "action_from_parent"):
    _check_shape(where, tree, name, nodes)
  for name in ("index", "prior_logits", "visits", "rewards", "discounts", "values"):
    _check_shape(where, tree, f"children_{name}", (*nodes, num_actions))


def _check_shape(where: str, tree: mctx.Tree, name: str, shape: tuple[int, ...]) -> None:
  found = getattr(tree, name)
  if not isinstance(found, jax.Array) or found.shape != shape:
    has = f"{found.dtype}{list(found.shape)}" if isinstance(found, jax.Array) else type(found).__name__
    raise UserError(f"{where}: its search_tree has {has} as {name}; must be an array {list(shape)}")


def _custom_search(plugin: user_code.Plugin) -> Callable[..., Any]:
  """Returns the user's `SearchFunction` with a check, when traced, of the shapes and dtypes of its output."""

  def search(config: PlannerConfig, *, temperature: Float[Array, "*lanes"], **kwargs: Any) -> Any:
    batch, num_actions = kwargs["invalid_actions"].shape
    temperature = jnp.broadcast_to(temperature.reshape(-1, 1), (batch, 1))
    output = plugin(config, temperature=temperature, **kwargs)
    with plugin.errors("its result cannot be read"):
      for name, shape, kind in (
        ("action", (batch,), jnp.integer),
        ("action_weights", (batch, num_actions), jnp.floating),
      ):
        found = getattr(output, name, None)
        if not isinstance(found, jax.Array) or found.shape != shape or not jnp.issubdtype(found.dtype, kind):
          has = f"{found.dtype}{list(found.shape)}" if isinstance(found, jax.Array) else type(found).__name__
          raise UserError(
            f"{plugin.where}: returns {type(output).__name__} with {has} as {name}; must be an "
            f"mctx.PolicyOutput with {kind.__name__}{list(shape)}"
          )
      tree = getattr(output, "search_tree", None)
      if not isinstance(tree, mctx.Tree):
        raise UserError(f"{plugin.where}: its search_tree is {type(tree).__name__}; must be an mctx.Tree")
      _check_tree(plugin.where, tree, batch, num_actions)
    return output

  return search
