"""Plays one evaluation episode again and keeps every decision and search tree.

The episode has the evaluation's seed, random start, opponent and search. If that search is noise-free, the
episode equals the evaluation's, except for ties in puct and stochastic.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from moozi.agent.agent import Carry, Decision, PureAgent
from moozi.agent.muzero import make_muzero
from moozi.agent.planner import make_recurrent_fn
from moozi.agent.search_tree import plain_tree, root_state
from moozi.analysis.batches import in_batches
from moozi.core.config import Config, PlannerConfig
from moozi.core.pytree import map_fields, replace
from moozi.core.records import BatchedTimeStep
from moozi.core.search_record import InspectedEpisode, PlayedStep, SearchTree
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.evaluation.episodes import stack_rows, stack_steps
from moozi.evaluation.evaluator import Evaluator, evaluation_planner
from moozi.evaluation.lanes import one_lane
from moozi.evaluation.opponents import seat_of
from moozi.nn.horizon import config_at, discount_of
from moozi.nn.model import Model, NetState, Params
from moozi.ops.actions import joint_probs
from moozi.ops.returns import n_step_return
from moozi.ops.schedules import temperature_at
from moozi.ops.signs import player_sign, search_discount
from moozi.run.build import build_model, build_rules, make_test_env

End = Literal["terminal", "truncated", "cut"]

# Number of unrolls in one call; limits the memory that large hidden states take.
_UNROLL_BATCH = 256


def inspect_episode(
  config: Config,
  spec: EnvSpec,
  variables: tuple[Params, NetState],
  *,
  index: int = 0,
  max_steps: int | None = None,
  num_simulations: int | None = None,
  on_step: Callable[[int], None] = lambda num_frames: None,
) -> InspectedEpisode:
  """Plays an evaluation episode; returns it with its frames, decisions and search trees.

  Args:
    config: the run's configuration, of an algorithm with a search.
    index: the episode's index, at least 0.
    max_steps: stops after this number of steps; None plays to the end.
    num_simulations: number of simulations of each search; None uses that of `planners.test`.
    on_step: called after each decision with the number of frames.

  Raises: EnvError: the environment raised or hung.
  """
  planner = evaluation_planner(config, num_simulations)
  agent, make_env = make_searching_agent(config, spec, planner), make_test_env(config)
  evaluator = Evaluator(agent, temperature_at(planner.temperature, 0), config, spec, make_env)
  steps: list[PlayedStep] = []
  with one_lane(config, spec, make_env, index) as lanes:
    for decision in evaluator.decisions(variables, lanes, shown=None):
      steps.append(lanes.played_step(0, decision))
      on_step(len(steps))
      if lanes.is_done or (max_steps is not None and len(steps) > max_steps):
        break
      lanes.step(decision.only(()))
  episode = _make_episode(steps, config_at(config, variables[1]), spec, index, planner)
  rewards = values = np.zeros((len(steps), 0), np.float32)
  if not config.plans_with_rules:
    model, hidden = build_model(config, spec), np.stack([step.extras["hidden_state"] for step in steps])
    rewards, values = _unroll(model, config, variables, hidden, episode.actions)
  values = np.concatenate([episode.prior_values[:, None], values], axis=1)
  return dataclasses.replace(episode, imagined_rewards=rewards, imagined_values=values)


def compact_tree(tree: SearchTree) -> SearchTree:
  """Returns the tree without the nodes that the search has not expanded, which have no visits."""
  kept = np.flatnonzero(tree.visits > 0)
  number = np.full(tree.num_nodes, -1, np.int32)
  number[kept] = np.arange(len(kept))
  out = map_fields(lambda x: x[kept], tree)
  return replace(out, parent=np.where(out.parent >= 0, number[out.parent], -1).astype(np.int32))


def make_searching_agent(config: Config, spec: EnvSpec, planner: PlannerConfig) -> PureAgent:
  """Makes an agent for one environment that also shows its searches.

  The extras of its decisions are those of `make_muzero`, where `tree` is a SearchTree, the root's
  `hidden_state` (with true rules [1, 0]), and the network's Q-values of the root's edges `network_q_values`
  [1, E].
  """
  model, rules = build_model(config, spec), build_rules(config)
  agent = make_muzero(model, planner, config.targets, spec, True, rules)

  def act(
    variables: tuple[Params, NetState],
    carry: Carry,
    timestep: BatchedTimeStep,
    rng_key: Array,
    *args: Any,
    **kwargs: Any,
  ) -> tuple[Carry, Decision]:
    carry, decision = agent.act(variables, carry, timestep, rng_key, *args, **kwargs)
    tree = decision.extras["tree"]
    state = root_state(tree)
    sampled = decision.extras.get("sampled_actions")
    actions = jnp.arange(spec.num_actions) if sampled is None else sampled[0]
    states = jax.tree.map(lambda x: jnp.repeat(x, len(actions), axis=0), state)
    discount = discount_of(variables[1], config.targets.discount)
    if model.chance is not None:
      afterstate, _ = model.chance.afterstate(*variables, states, actions, False)
      _, q_values = afterstate.reward_and_q_value(model.transform, discount)
      network_q_values = q_values[None]
    else:
      recurrent_fn = make_recurrent_fn(model, search_discount(discount, spec.num_players), rules)
      edge, _ = recurrent_fn(variables, rng_key, actions, states)
      network_q_values = (edge.reward + edge.discount * edge.value)[None]
    shown = {
      "tree": plain_tree(tree),
      "hidden_state": state if rules is None else jnp.zeros((1, 0)),
      "network_q_values": network_q_values,
    }
    return carry, replace(decision, extras=decision.extras | shown)

  return dataclasses.replace(agent, act=act)


def _make_episode(
  steps: list[PlayedStep], config: Config, spec: EnvSpec, index: int, planner: PlannerConfig
) -> InspectedEpisode:
  """Stacks the steps into an episode; leaves the imagined rewards and values empty."""

  def extras(name: str) -> np.ndarray:
    return np.stack([step.extras[name] for step in steps])

  last = steps[-1]
  is_terminal = last.is_last and not last.is_truncated
  end: End = "terminal" if is_terminal else "truncated" if last.is_last else "cut"
  played, is_agents = stack_steps(steps), np.array([step.is_agents for step in steps])
  # No action is played at the last frame.
  played["actions"][-1], is_agents[-1] = DUMMY_ACTION, True
  played["rewards"][0] = 0.0
  seat, to_play = np.int32(seat_of(index) if spec.num_players == 2 else 0), played["to_play"]
  empty = np.zeros((len(steps), 0), np.float32)
  trees = [compact_tree(step.extras["tree"]) for step in steps]
  prior_probs, choices = extras("prior_probs"), played["choices"]
  if choices is not None:
    prior_probs = joint_probs(prior_probs, choices, spec.policy_groups)
  return InspectedEpisode(
    **played,
    index=index,
    end=end,
    seat=int(seat),
    length=len(steps) - 1,
    discount=config.targets.discount,
    signed_discount=search_discount(config.targets.discount, spec.num_players),
    num_simulations=planner.num_simulations,
    legal_actions_mask=stack_rows([step.legal_actions_mask for step in steps]),
    seat_sign=player_sign(to_play, seat),
    is_agents=is_agents,
    prior_values=extras("prior_value"),
    returns=_returns(played["rewards"], played["root_values"], to_play, is_terminal, config.targets.discount),
    prior_probs=prior_probs,
    q_values=extras("q_values"),
    network_q_values=extras("network_q_values"),
    imagined_rewards=empty,
    imagined_values=empty,
    trees=(*trees[:-1], None) if is_terminal else tuple(trees),
  )


def _returns(
  rewards: Float[np.ndarray, "T"],
  root_values: Float[np.ndarray, "T"],
  to_play: Int[np.ndarray, "T"],
  is_terminal: bool,
  discount: float,
) -> Float[np.ndarray, "T"]:
  """Computes each frame's discounted return to the end, as an n-step return with n = T."""
  num = len(rewards)
  is_last = np.arange(2 * num) == num - 1
  rewards, root_values, to_play = (np.pad(x, (0, num)) for x in (rewards, root_values, to_play))
  is_truncated = is_last & (not is_terminal)
  return np.asarray(n_step_return(rewards, root_values, to_play, is_last, is_truncated, num, discount))


def _unroll(
  model: Model,
  config: Config,
  variables: tuple[Params, NetState],
  hidden: Shaped[np.ndarray, "T ..."],
  actions: Int[np.ndarray, "T"],
) -> tuple[Float[np.ndarray, "T K"], Float[np.ndarray, "T K"]]:
  """Unrolls the model from each frame along the next K actions; returns its rewards and values."""
  num, length = len(actions), config.targets.unroll_steps

  @jax.jit
  def unroll(hidden: Array, actions: Array) -> tuple[Array, Array]:
    def advance(state: Array, action: Array) -> tuple[Array, tuple[Array, Array]]:
      output, _ = model.recurrent_inference(*variables, state, action, False)
      reward = model.transform.to_scalar(output.reward_logits)
      return output.hidden_state, (reward, model.transform.to_scalar(output.value_logits))

    rewards, values = jax.lax.scan(advance, hidden, actions.T)[1]
    return rewards.T, values.T

  padded = np.concatenate([actions, np.full(length, DUMMY_ACTION, actions.dtype)])
  played = np.stack([padded[k : k + num] for k in range(length)], axis=1)
  rewards, values = in_batches(unroll, _UNROLL_BATCH, hidden, played)
  return rewards, values
