"""Planning with the learned model, or with the true rules. Only this module and `searches` import mctx."""

from typing import Any

import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Bool, Float, Int, Int32, Num

from moozi.agent.sampled import SampledNode, effective_number, keys_of, sample_actions, with_samples
from moozi.agent.search_tree import chance_probs, complete_q_values, has_chance, search_depth
from moozi.agent.searches import ChanceFns, find_search
from moozi.core.config import PlannerConfig
from moozi.core.config.planner import CHANCE_SEARCHES, VISIT_SEARCHES
from moozi.core.pytree import record
from moozi.core.types import AnyArray
from moozi.envs.true_rules import TrueRules
from moozi.nn.horizon import discount_of
from moozi.nn.model import Model, NetState, Params
from moozi.ops.actions import encode_action
from moozi.ops.history import HistoryState, network_input, push_action, push_frame
from moozi.ops.policy import most_probable, policy_probs, random_actions
from moozi.ops.signs import search_discount

Discount = Float[AnyArray, ""] | float

# Folded into the search's key, it gives the key of the random actions.
_RANDOM_ACTION = 1
# Folded into the search's key, it gives the key of the root's sampled actions.
_SAMPLES = 2


@record
class SearchOutput:
  """The result of one search from each of B roots.

  Attributes:
    action: in the agent's action space; at a live root, a built-in search chooses a legal one.
    action_probs: the search policy; exactly 0 on illegal actions. With sampled joint actions, the marginals
      of the search policy in each dimension.
    root_value: env units, for the player to move.
    prior_probs: the network's policy over the legal actions, without noise and at temperature 1.
    prior_action: the most probable action of `prior_probs`.
    prior_value: env units, the network's value.
    q_values: env units, of the root's edges; those that were not visited have the mixed value
      (`complete_q_values`).
    depth_mean: mean depth at which the simulations ended; the root has depth 0, and an afterstate counts as a
      level.
    depth_max: depth at which the deepest simulation ended.
    sampled_actions, sampled_probs: with sampled joint actions, those of the E edges in increasing order, and
      the search policy over them. None if each edge is an action; E is then A.
    effective_samples: with sampled joint actions, the exponential of the entropy of the search's prior at the
      root over the E edges, without noise; else None.
    chance_probs: the probabilities of the N codes of each action's outcome; 0 where the search has not
      visited the action. None unless the search has chance nodes.
    tree: the search tree (mctx's Tree, with embeddings) if requested, else None.
  """

  action: Int32[Array, "B"]
  action_probs: Float[Array, "B P"]
  root_value: Float[Array, "B"]
  prior_probs: Float[Array, "B P"]
  prior_action: Int32[Array, "B"]
  prior_value: Float[Array, "B"]
  q_values: Float[Array, "B E"]
  depth_mean: Float[Array, "B"]
  depth_max: Int32[Array, "B"]
  sampled_actions: Int32[Array, "B E"] | None = None
  sampled_probs: Float[Array, "B E"] | None = None
  effective_samples: Float[Array, "B"] | None = None
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
  legal_actions_mask: Bool[AnyArray, "B P"],
  temperature: Num[AnyArray, "*lanes"] | float,
  with_tree: bool = False,
  rules: TrueRules | None = None,
  node: RulesNode | None = None,
) -> SearchOutput:
  """Runs a root inference and a search from each root, and chooses an action.

  With puct and stochastic, the probability of an action is proportional to its visit count to the power
  1/temperature. At temperature 0 the most visited action is chosen, and the prior breaks ties. Any other
  search chooses the action itself; gumbel and stochastic_gumbel do so with Gumbel noise, scaled by
  `gumbel_scale`. With probability `random_action_prob`, a uniformly random legal action replaces the chosen
  one.

  With stochastic and stochastic_gumbel, a simulation evaluates either an afterstate or an outcome. After an
  afterstate, the search visits the outcome with the largest probability / (visits + 1). If the model has
  chance nodes, the other searches follow the most probable outcome of each action.

  With a learned model, illegal actions are masked at the root only. In deeper nodes only the network's policy
  avoids them, because its training targets are 0 on illegal actions.

  Where joint actions have no entries of their own (`EnvSpec.is_factored`), each node samples up to
  `num_sampled_actions` joint actions from the network's policy (`agent.sampled`), and the search policy is
  over the root's samples. If `config.is_noise_free`, the samples depend neither on `rng_key` nor on the other
  roots.

  With `rules`, the search has the game's true rules in place of the learned model (AlphaZero). The network
  evaluates the true frame of each node. Rewards and terminal positions are those of the game. The value of a
  terminal position is 0. In every other position, illegal actions have prior 0.

  Args:
    model, config, num_players, with_tree, rules: static arguments under jit.
    discount: γ ≥ 0, unless `net_state` carries another; with two players the search itself uses −γ.
    rng_key: for the noise, the samples and the choice of the action; do not use it elsewhere.
    stacked_history: Ch = L·(C + P) channels.
    legal_actions_mask: each row has a legal action. If only the dummy is legal, a built-in search chooses it,
      unless joint actions are sampled.
    temperature: ≥ 0, one for all roots or one for each root; the Gumbel searches do not read it.
    node: with `rules`, the nodes of the B roots; else None.

  Source: Schrittwieser et al. 2020, appendix B (puct); Danihelka et al. 2022 (gumbel); Antonoglou et al. 2022
    (stochastic); Silver et al. 2018 (true rules); thesis 4.3.5.
    Departures: Q-values are divided by at least `q_range_floor`. With puct and stochastic, they are
    normalized by the range among a node and its children; appendix B has the range of the whole tree. A mean
    root value counts the network's own value as one visit. The prior's logits at the root are divided by
    `root_prior_temperature`, before any noise (Wu 2019, Accelerating Self-Play Learning in Go). mctx draws
    Dirichlet noise over all actions; the part on illegal ones is lost, so the noise has a smaller share than
    `dirichlet_fraction` where actions are illegal.
  """
  output, _ = model.root_inference(params, net_state, stacked_history, False)
  prior_value = model.transform.to_scalar(output.value_logits)
  embedding: Any = output.hidden_state if rules is None else node
  root_logits = output.policy_logits / config.root_prior_temperature
  prior_probs = policy_probs(output.policy_logits, legal_actions_mask, model.policy_groups)
  signed_discount = search_discount(discount_of(net_state, discount), num_players)
  recurrent_fn: Any = make_recurrent_fn(model, signed_discount, rules)
  # The root's edges: the actions, or samples of them.
  actions, legal, edge_probs = None, legal_actions_mask, prior_probs
  if len(model.policy_groups) > 1:
    options = model.policy_groups, config.num_sampled_actions
    keys = keys_of(stacked_history) if config.is_noise_free else None
    sample_key = jax.random.fold_in(rng_key, _SAMPLES) if keys is None else keys
    actions, root_logits = sample_actions(sample_key, root_logits, *options)
    order = jnp.argsort(actions, axis=1)
    actions, root_logits = (jnp.take_along_axis(x, order, axis=1) for x in (actions, root_logits))
    embedding = SampledNode(state=embedding, actions=actions, keys=keys)
    recurrent_fn = with_samples(recurrent_fn, *options)
    legal, edge_probs = jnp.ones(actions.shape, bool), jax.nn.softmax(root_logits)
  root = mctx.RootFnOutput(prior_logits=root_logits, value=prior_value, embedding=embedding)
  search = find_search(config)
  if config.algorithm in CHANCE_SEARCHES:
    recurrent_fn = _make_chance_fns(model, signed_discount)
  policy_output = search(
    config,
    params=(params, net_state),
    rng_key=rng_key,
    root=root,
    recurrent_fn=recurrent_fn,
    invalid_actions=1.0 - legal.astype(jnp.float32),
    temperature=jnp.asarray(temperature, jnp.float32),
  )
  tree = policy_output.search_tree
  summary = tree.summary()
  weights = jnp.where(legal, policy_output.action_weights, 0.0)
  action = policy_output.action
  if config.algorithm in VISIT_SEARCHES:
    # At temperature 0 mctx draws one of the most visited actions; here the prior breaks the tie.
    visits = jnp.where(legal, summary.visit_counts + 0.5 * edge_probs, -1.0)
    # At temperatures above 4, mctx can draw an illegal action.
    is_legal = jnp.take_along_axis(legal, action[:, None], axis=-1)[:, 0]
    is_greedy = jnp.broadcast_to(jnp.asarray(temperature) == 0, action.shape) | ~is_legal
    action = jnp.where(is_greedy, jnp.argmax(visits, axis=-1), action)
  if actions is not None:
    action = jnp.take_along_axis(actions, action[:, None], axis=-1)[:, 0]
  if config.random_action_prob > 0:
    draw_key, action_key = jax.random.split(jax.random.fold_in(rng_key, _RANDOM_ACTION))
    is_random = jax.random.bernoulli(draw_key, config.random_action_prob, action.shape)
    random = random_actions(action_key, legal_actions_mask, model.policy_groups)
    action = jnp.where(is_random, random, action)
  root_prior = jax.nn.softmax(root_logits, where=legal)
  q_values = complete_q_values(summary.qvalues, summary.visit_counts, root_prior, prior_value)
  if config.has_improved_root_value:
    root_value = jnp.sum(weights * q_values, axis=-1)
  else:
    # The mean over visits is finite even where the policy head is not; NaN makes replay refuse the segment.
    root_value = jnp.where(jnp.isfinite(prior_probs).all(axis=-1), summary.value, jnp.nan)
  depth_mean, depth_max = search_depth(tree)
  action_probs = weights
  if actions is not None:
    action_probs = jnp.einsum("be,bep->bp", weights, encode_action(actions, model.policy_groups))
  return SearchOutput(
    action=action.astype(jnp.int32),
    action_probs=action_probs,
    root_value=root_value,
    prior_probs=prior_probs,
    prior_action=most_probable(prior_probs, model.policy_groups).astype(jnp.int32),
    prior_value=prior_value,
    q_values=q_values,
    depth_mean=depth_mean,
    depth_max=depth_max,
    sampled_actions=actions,
    sampled_probs=None if actions is None else weights,
    effective_samples=None if actions is None else effective_number(root_logits),
    chance_probs=chance_probs(tree) if has_chance(tree) else None,
    tree=tree if with_tree else None,
  )


def make_recurrent_fn(model: Model, signed_discount: Discount, rules: TrueRules | None = None) -> Any:
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


def _make_rules_fn(model: Model, signed_discount: Discount, rules: TrueRules) -> Any:
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


def _make_chance_fns(model: Model, signed_discount: Discount) -> ChanceFns:
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

  return ChanceFns(decision_fn, chance_fn)
