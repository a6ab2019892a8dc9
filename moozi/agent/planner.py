"""Planning with the learned model, or with the true rules. The only module that imports mctx."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import mctx
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, Num

from moozi.core import plugins, user_code
from moozi.core.config import PlannerConfig
from moozi.core.config.planner import CHANCE_SEARCHES, VISIT_SEARCHES
from moozi.core.errors import UserError
from moozi.core.pytree import record
from moozi.core.search_record import SearchTree
from moozi.core.types import AnyArray
from moozi.envs.true_rules import TrueRules
from moozi.nn.model import Model, NetState, Params
from moozi.ops.history import HistoryState, network_input, push_action, push_frame
from moozi.ops.players import search_discount

# Folded into the search's key, it gives the key of the random actions.
_RANDOM_ACTION = 1


@record
class SearchOutput:
  """The result of one search from each of B roots.

  Attributes:
    action: in the agent's action space; always legal.
    action_probs: the search policy; exactly 0 on illegal actions.
    root_value: env units, for the player to move.
    prior_probs: the network's policy over the legal actions, without noise and at temperature 1.
    prior_value: env units, the network's value.
    q_values: env units; actions that were not visited have the mixed value (`_complete_q_values`).
    depth_mean: mean depth at which the simulations ended; the root has depth 0, and an
      afterstate counts as a level.
    depth_max: depth at which the deepest simulation ended.
    chance_probs: the probabilities of the N codes of each action's outcome; 0 where the search has not
      visited the action. None unless the search has chance nodes.
    tree: the search tree (mctx's Tree, with embeddings) if requested, else None.
  """

  action: Int32[Array, "B"]
  action_probs: Float[Array, "B A"]
  root_value: Float[Array, "B"]
  prior_probs: Float[Array, "B A"]
  prior_value: Float[Array, "B"]
  q_values: Float[Array, "B A"]
  depth_mean: Float[Array, "B"]
  depth_max: Int32[Array, "B"]
  chance_probs: Float[Array, "B A N"] | None = None
  tree: Any = None


@record
class RulesNode:
  """The embedding of a node in a search with true rules, in place of a hidden state.

  Attributes:
    position: the game's position; see `envs.true_rules`.
    history: the frames and actions up to and including this node's frame.
    is_over: whether the game has ended.
  """

  position: Any
  history: HistoryState
  is_over: Bool[AnyArray, "B"]


def plan(
  model: Model,
  config: PlannerConfig,
  discount: float,
  num_players: int,
  params: Params,
  net_state: NetState,
  rng_key: Array,
  stacked_history: Float[AnyArray, "B H W Ch"],
  legal_actions_mask: Bool[AnyArray, "B A"],
  temperature: Num[AnyArray, "*lanes"] | float,
  with_tree: bool = False,
  rules: TrueRules | None = None,
  node: RulesNode | None = None,
) -> SearchOutput:
  """Runs a root inference and a search from each root, and chooses an action.

  With puct and stochastic, the probability of an action is proportional to its visit count to the power
  1/temperature. At temperature 0 the most visited action is chosen, and the prior breaks ties. With gumbel
  and stochastic_gumbel the search itself chooses the action; its only noise is the Gumbel noise, scaled by
  `gumbel_scale`. With probability `random_action_prob`, a uniformly random legal action replaces the chosen
  one.

  With stochastic and stochastic_gumbel, a simulation evaluates either an afterstate or an outcome, and the
  search visits the outcomes of an afterstate in proportion to their probabilities. If the model has chance
  nodes, the other searches follow the most probable outcome of each action.

  Illegal actions are masked at the root only. In deeper nodes only the network's policy avoids them, because
  its training targets are 0 on illegal actions.

  With `rules`, the search has the game's true rules in place of the learned model (AlphaZero). The network
  evaluates the true frame of each node, rewards and terminal positions are those of the game, the value of a
  terminal position is 0, and illegal actions have prior 0 in every node.

  Args:
    model, config, num_players, with_tree, rules: static arguments under jit.
    discount: γ ≥ 0; with two players the search itself uses −γ.
    rng_key: for the noise and the choice of the action; do not use it elsewhere.
    stacked_history: Ch = L·(C + A) channels.
    legal_actions_mask: each row has a legal action; if only the dummy is legal, it is chosen.
    temperature: ≥ 0, one for all roots or one for each root; gumbel does not read it.
    node: with `rules`, the nodes of the B roots; else None.

  Source: Schrittwieser et al. 2020, appendix B (puct); Danihelka et al. 2022 (gumbel); Antonoglou et al. 2022
    (stochastic); Silver et al. 2018 (true rules); thesis 4.3.5.
    Departures: Q-values are normalized by the range among a node and its children, or by `q_range_floor` if
    it is larger; appendix B has the range of the whole tree. With puct, the value of the root counts the
    network's own value as one visit. The prior's logits at the root are divided by `root_prior_temperature`,
    before any noise (Wu 2019, Accelerating Self-Play Learning in Go). mctx draws Dirichlet noise over all
    actions; the part on illegal ones is lost, so the noise has a smaller share than `dirichlet_fraction`
    where few actions are legal.
  """
  output, _ = model.root_inference(params, net_state, stacked_history, False)
  prior_value = model.transform.to_scalar(output.value_logits)
  embedding: Any = output.hidden_state if rules is None else node
  root_logits = output.policy_logits / config.root_prior_temperature
  root = mctx.RootFnOutput(prior_logits=root_logits, value=prior_value, embedding=embedding)
  search = SEARCHES.get(config.algorithm) or _custom_search(plugins.SEARCHES.get(config.algorithm))
  signed_discount = search_discount(discount, num_players)
  recurrent_fn: Any = make_recurrent_fn(model, signed_discount, rules)
  if config.algorithm in CHANCE_SEARCHES:
    recurrent_fn = _make_chance_fns(model, signed_discount)
  policy_output = search(
    config,
    params=(params, net_state),
    rng_key=rng_key,
    root=root,
    recurrent_fn=recurrent_fn,
    invalid_actions=1.0 - legal_actions_mask.astype(jnp.float32),
    temperature=jnp.asarray(temperature, jnp.float32),
  )
  tree = policy_output.search_tree
  summary = tree.summary()
  prior_probs = jax.nn.softmax(output.policy_logits, where=legal_actions_mask)
  action_probs = jnp.where(legal_actions_mask, policy_output.action_weights, 0.0)
  action = policy_output.action
  if config.algorithm in VISIT_SEARCHES:
    # At temperature 0 mctx draws one of the most visited actions; here the prior breaks the tie.
    visits = jnp.where(legal_actions_mask, summary.visit_counts + 0.5 * prior_probs, -1.0)
    # At temperatures above 4, mctx can draw an illegal action.
    is_legal = jnp.take_along_axis(legal_actions_mask, action[:, None], axis=-1)[:, 0]
    is_greedy = jnp.broadcast_to(jnp.asarray(temperature) == 0, action.shape) | ~is_legal
    action = jnp.where(is_greedy, jnp.argmax(visits, axis=-1), action)
  if config.random_action_prob > 0:
    draw_key, action_key = jax.random.split(jax.random.fold_in(rng_key, _RANDOM_ACTION))
    is_random = jax.random.bernoulli(draw_key, config.random_action_prob, action.shape)
    legal = jnp.where(legal_actions_mask, 0.0, -jnp.inf)
    action = jnp.where(is_random, jax.random.categorical(action_key, legal), action)
  root_prior = jax.nn.softmax(root_logits, where=legal_actions_mask)
  q_values = _complete_q_values(summary.qvalues, summary.visit_counts, root_prior, prior_value)
  improved = jnp.sum(action_probs * q_values, axis=-1)
  depth_mean, depth_max = _search_depth(tree)
  return SearchOutput(
    action=action.astype(jnp.int32),
    action_probs=action_probs,
    root_value=improved if config.has_improved_root_value else summary.value,
    prior_probs=prior_probs,
    prior_value=prior_value,
    q_values=q_values,
    depth_mean=depth_mean,
    depth_max=depth_max,
    chance_probs=_chance_probs(tree) if _has_chance(tree) else None,
    tree=tree if with_tree else None,
  )


def plain_tree(tree: Any) -> SearchTree:
  """Returns the tree of a `SearchOutput` as plain arrays [B, N], with N = num_simulations + 1.

  Unused nodes have 0 visits: a search that reaches `max_depth` expands fewer nodes. The priors
  at the root are those that the search used: over the legal actions, with `root_prior_temperature`, and with
  Dirichlet noise if there is any.
  """
  lane = jnp.arange(tree.parents.shape[0])[:, None]
  parent = tree.parents
  is_child = parent >= 0
  above, edge = jnp.maximum(parent, 0), jnp.maximum(tree.action_from_parent, 0)
  if _has_chance(tree):
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
  if _has_chance(tree):
    return tree.embeddings.state_embedding[0][:, 0]
  return jax.tree.map(lambda x: x[:, 0], tree.embeddings)


def _has_chance(tree: Any) -> bool:
  """Returns whether a search with chance nodes made the tree."""
  return hasattr(tree.embeddings, "is_decision_node")


def _chance_probs(tree: Any) -> Float[Array, "B A N"]:
  """Returns the code probabilities of the root's afterstates; see `SearchOutput.chance_probs`."""
  logits = tree.embeddings.afterstate_embedding[1]
  child = tree.children_index[:, 0]
  probs = jax.nn.softmax(jnp.take_along_axis(logits, jnp.maximum(child, 0)[..., None], axis=1))
  return jnp.where(child[..., None] >= 0, probs, 0.0)


def make_recurrent_fn(model: Model, signed_discount: float, rules: TrueRules | None = None) -> Any:
  """Returns mctx's recurrent function, which evaluates an edge and its child, with scalars in env units."""
  if rules is not None:
    return _make_rules_fn(model, signed_discount, rules)

  def recurrent_fn(
    variables: Any, rng_key: Array, action: Int[Array, "B"], hidden_state: Float[Array, "B ..."]
  ) -> tuple[Any, Float[Array, "B ..."]]:
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


def _make_rules_fn(model: Model, signed_discount: float, rules: TrueRules) -> Any:
  """Returns mctx's recurrent function with the game's rules; an embedding is a RulesNode.

  An illegal action, or any action at a terminal node, leads to a terminal node with reward 0. The built-in
  searches never choose an illegal action at other nodes, because its prior is 0 and some legal action has a
  higher score.
  """
  spec = rules.spec

  def recurrent_fn(
    variables: Any, rng_key: Array, action: Int[Array, "B"], node: RulesNode
  ) -> tuple[Any, RulesNode]:
    del rng_key  # the game has no chance
    outcome = rules.step(node.position, action, node.is_over)
    history = push_frame(push_action(node.history, action), outcome.frame, jnp.zeros_like(node.is_over))
    stacked = network_input(history.frames, history.actions, spec)
    output, _ = model.root_inference(*variables, stacked, False)
    value = jnp.where(outcome.is_over, 0.0, model.transform.to_scalar(output.value_logits))
    # As mctx masks the root. Not -inf, because all actions are illegal at a terminal node.
    masked = jnp.finfo(output.policy_logits.dtype).min
    edge = mctx.RecurrentFnOutput(
      reward=outcome.reward,
      discount=jnp.where(outcome.is_over, 0.0, signed_discount),
      prior_logits=jnp.where(outcome.legal_actions_mask, output.policy_logits, masked),
      value=value,
    )
    return edge, RulesNode(position=outcome.position, history=history, is_over=outcome.is_over)

  return recurrent_fn


class _ChanceFns(NamedTuple):
  """The recurrent functions of `mctx.stochastic_muzero_policy`, for actions and for outcomes."""

  decision: Any
  chance: Any


def _make_chance_fns(model: Model, signed_discount: float) -> _ChanceFns:
  """Returns mctx's recurrent functions for a model with chance nodes, with scalars in env units.

  An afterstate has the same player and time step as the state before it, so its edge has reward 0 and
  discount 1. The edge of an outcome has the reward and the discount. For `plain_tree`, the embedding of a
  state is (hidden state, reward on entering it), and that of an afterstate (hidden state, logits of the
  codes, its reward).
  """
  chance, discount = model.chance, abs(signed_discount)
  assert chance is not None, "the configuration demands chance.codes for a search with chance nodes"

  def decision_fn(variables: Any, rng_key: Array, action: Int[Array, "B"], state: Any) -> tuple[Any, Any]:
    del rng_key
    output, _ = chance.afterstate(*variables, state[0], action, False)
    reward, q_value = output.reward_and_q_value(model.transform, discount)
    edge = mctx.DecisionRecurrentFnOutput(chance_logits=output.chance_logits, afterstate_value=q_value)
    return edge, (output.hidden_state, output.chance_logits, reward)

  def chance_fn(variables: Any, rng_key: Array, code: Int[Array, "B"], state: Any) -> tuple[Any, Any]:
    del rng_key
    one_hot = jax.nn.one_hot(code, chance.num_codes)
    output, _ = chance.outcome(*variables, state[0], one_hot, False)
    value = model.transform.to_scalar(output.value_logits)
    reward = state[2] + model.transform.to_scalar(output.reward_logits)  # one of them is 0
    edge = mctx.ChanceRecurrentFnOutput(
      action_logits=output.policy_logits,
      value=value,
      reward=reward,
      discount=jnp.full_like(value, signed_discount),
    )
    return edge, (output.hidden_state, reward)

  return _ChanceFns(decision_fn, chance_fn)


def _puct(config: PlannerConfig, *, temperature: Float[Array, "*lanes"], **kwargs: Any) -> Any:
  return mctx.muzero_policy(**kwargs, **_puct_options(config, temperature))


def _stochastic(
  config: PlannerConfig,
  *,
  root: Any,
  recurrent_fn: _ChanceFns,
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
  recurrent_fn: _ChanceFns,
  invalid_actions: Float[Array, "B A"],
  temperature: Float[Array, "*lanes"],
) -> Any:
  """Gumbel MuZero's search on a tree with chance nodes.

  A state has the edges 0 … A−1, its actions, and an afterstate the edges A … A+N−1, its outcomes, as in
  `mctx.stochastic_muzero_policy`. Actions are chosen as in `mctx.gumbel_muzero_policy`, and outcomes with the
  largest p / (visits + 1).

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


class SearchFunction(Protocol):
  """The interface of a user's search from B roots; arguments and output are those of an mctx policy."""

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
      config: the planner's section. Evaluation passes gumbel_scale 0, dirichlet_fraction 0 and temperature 0;
        the search must then have no noise.
      params: pass it to `recurrent_fn`.
      root: `mctx.RootFnOutput` with logits [B, A], values in env units, and embeddings: hidden states, or a
        RulesNode with algorithm=alphazero.
      recurrent_fn: `mctx.RecurrentFn`; its discount is γ, or −γ with two players; with true rules, 0 at a
        terminal node.
      invalid_actions: 1 where the action is illegal at the root; at least one is legal.
      temperature: ≥ 0.
    """


SEARCHES: dict[str, Callable[..., Any]] = {
  "puct": _puct,
  "gumbel": _gumbel,
  "stochastic": _stochastic,
  "stochastic_gumbel": _stochastic_gumbel,
}
"""The built-in searches, by value of `planners.*.algorithm`; `core.plugins.SEARCHES` has the user's."""


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


def _search_depth(tree: Any) -> tuple[Float[Array, "B"], Int[Array, "B"]]:
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


def _complete_q_values(
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
