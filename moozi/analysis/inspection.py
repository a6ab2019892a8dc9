"""One evaluation episode played again, with everything kept that was thought in it.

The episode is the evaluation's own: its seed, its random start, its opponent, its search. Where that search
is without noise, what is seen here is what was counted there.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from moozi.agent.planner import plain_tree, root_state
from moozi.agent.policy import make_policy
from moozi.core.config import Config
from moozi.core.pytree import map_fields, replace
from moozi.core.records import BatchedTimeStep
from moozi.core.search_record import InspectedEpisode, SearchTree
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs.guard import EnvGuard
from moozi.envs.vector import SyncVectorEnvironment
from moozi.envs.wrappers import RandomStarts, StepCap
from moozi.evaluation.evaluator import evaluation_planner
from moozi.evaluation.opponents import make_opponent, seat_of
from moozi.nn.model import Model, NetState, Params
from moozi.ops.history import init_history
from moozi.ops.players import player_sign, search_discount
from moozi.ops.returns import n_step_return
from moozi.ops.schedules import temperature_at
from moozi.run.build import build_model, make_test_env

Array = Any
End = Literal["terminal", "truncated", "cut"]

# Unrolls are made so many at once, so that a long episode of large hidden states fits into memory.
_UNROLL_BATCH = 256


@dataclasses.dataclass(frozen=True)
class _Moment:
  """One frame of the episode, and what was thought there; the lane's axis of one is kept in `step`."""

  step: BatchedTimeStep
  picture: np.ndarray | None
  thought: Any  # SearchOutput with a SearchTree
  hidden_state: np.ndarray
  network_q_values: np.ndarray
  is_agents: bool


def inspect_episode(
  config: Config,
  spec: EnvSpec,
  params: Params,
  net_state: NetState,
  *,
  index: int = 0,
  max_steps: int | None = None,
  num_simulations: int | None = None,
  on_step: Callable[[int], None] = lambda step: None,
) -> InspectedEpisode:
  """Plays an evaluation episode and keeps what was seen and thought.

  Args:
    config: the run's configuration, of MuZero.
    spec: the environment's facts.
    params, net_state: the network's.
    index: which episode; any number from 0 on.
    max_steps: leave the episode after so many steps; None plays it to its end.
    num_simulations: of each search, in the place of the testing planner's own.
    on_step: called with the number of frames thought about, after each.

  Raises: EnvError: the environment raised or hung.
  """
  model = build_model(config, spec)
  planner = evaluation_planner(config, num_simulations)
  think = _make_think(model, config, spec, num_simulations)
  temperature = jnp.float32(temperature_at(planner.temperature, 0))
  params, net_state = jax.device_put((params, net_state))
  history = init_history(1, config.targets.history_length, spec)
  rng_key = jax.random.PRNGKey(config.evaluation.seed)
  moments: list[_Moment] = []
  world, opponents_action = _make_env(config, spec, index)
  with contextlib.closing(world):
    step = world.reset()
    while True:
      rng_key, key = jax.random.split(rng_key)
      forced = opponents_action(step)
      history, *thoughts = think(params, net_state, history, step, key, temperature, forced)
      thought, hidden_state, network_q_values = jax.device_get(thoughts)
      is_agents = bool(forced[0] < 0)
      moments.append(_Moment(step, world.render(0), thought, hidden_state[0], network_q_values[0], is_agents))
      on_step(len(moments))
      if step.is_last[0] or (max_steps is not None and len(moments) > max_steps):
        break
      step = world.step(thought.action)
  episode = _gather(moments, config, spec, index, planner.num_simulations)
  hidden_states = np.stack([m.hidden_state for m in moments])
  rewards, values = _imagine(model, config, params, net_state, hidden_states, episode.actions)
  values = np.concatenate([episode.prior_values[:, None], values], axis=1)
  return dataclasses.replace(episode, imagined_rewards=rewards, imagined_values=values)


def compact_tree(tree: SearchTree) -> SearchTree:
  """The tree [N] without the nodes that were never made."""
  kept = np.flatnonzero(tree.visits > 0)
  number = np.full(tree.num_nodes, -1, np.int32)
  number[kept] = np.arange(len(kept))
  out = map_fields(lambda x: x[kept], tree)
  return replace(out, parent=np.where(out.parent >= 0, number[out.parent], -1).astype(np.int32))


def _make_think(
  model: Model, config: Config, spec: EnvSpec, num_simulations: int | None
) -> Callable[..., tuple[Any, Any, Array, Array]]:
  """The compiled policy; beside its output the hidden state, and what each action is worth to the model."""
  planner = evaluation_planner(config, num_simulations)
  policy = make_policy(model, planner, config.targets, spec, with_tree=True)
  signed_discount = search_discount(config.targets.discount, spec.num_players)

  @jax.jit
  def think(params: Params, net_state: NetState, *args: Any) -> tuple[Any, Any, Array, Array]:
    history, output = policy(params, net_state, *args)
    state = root_state(output.tree)
    each = jnp.repeat(state, spec.num_actions, axis=0)
    after, _ = model.recurrent_inference(params, net_state, each, jnp.arange(spec.num_actions), False)
    reward, value = (model.transform.to_scalar(x) for x in (after.reward_logits, after.value_logits))
    network_q_values = (reward + signed_discount * value)[None]
    return history, replace(output, tree=plain_tree(output.tree)), state, network_q_values

  return think


def _make_env(
  config: Config, spec: EnvSpec, index: int
) -> tuple[SyncVectorEnvironment, Callable[[BatchedTimeStep], np.ndarray]]:
  """The environment of an evaluation episode, and its opponent's action [1] int32, -1 where the agent
  moves.
  """
  evaluation = config.evaluation
  seed = evaluation.seed + index
  env = RandomStarts(make_test_env(config)(evaluation.seed), evaluation.max_random_starts)
  capped = StepCap(env, evaluation.max_episode_steps)
  opponent = make_opponent(config, spec, capped, seed)
  seat = seat_of(index)

  def opponents_action(step: BatchedTimeStep) -> np.ndarray:
    if opponent is None or step.is_last[0] or step.to_play[0] == seat:
      return np.full(1, -1, np.int32)
    return np.array([1 + opponent.action(step.legal_actions_mask[0, 1:])], np.int32)

  # As in `evaluation.evaluator`: an environment made anew could not go on with the episode.
  timeout_s = config.workers.env_timeout_s
  guard = EnvGuard(spec.name, [seed], make=None, max_faults=1, timeout_s=timeout_s)
  return SyncVectorEnvironment([capped], next_seed=lambda _: seed, guard=guard), opponents_action


def _gather(
  moments: list[_Moment], config: Config, spec: EnvSpec, index: int, num_simulations: int
) -> InspectedEpisode:
  """The episode's arrays; what the model imagined is still to be filled in."""

  def shown(name: str) -> np.ndarray:
    return np.stack([getattr(m.step, name)[0] for m in moments])

  def thought(name: str) -> np.ndarray:
    return np.stack([getattr(m.thought, name)[0] for m in moments])

  last = moments[-1].step
  is_terminal = bool(last.is_last[0] and not last.is_truncated[0])
  end: End = "terminal" if is_terminal else "truncated" if last.is_last[0] else "cut"
  actions, is_agents = thought("action"), np.array([m.is_agents for m in moments])
  # The action at an end is discarded; where the episode was left, the next one was not played either.
  actions[-1], is_agents[-1] = DUMMY_ACTION, True
  trees: list[SearchTree | None] = [compact_tree(map_fields(lambda x: x[0], m.thought.tree)) for m in moments]
  if is_terminal:
    trees[-1] = None
  seat = seat_of(index) if spec.num_players == 2 else 0
  to_play, rewards, root_values = shown("to_play"), shown("last_reward"), thought("root_value")
  rewards[0] = 0.0
  mover_sign = player_sign(to_play[:-1], np.int32(seat))
  pictures = [m.picture for m in moments if m.picture is not None]
  nothing = np.zeros((len(moments), 0), np.float32)
  return InspectedEpisode(
    index=index,
    end=end,
    seat=seat,
    return_=float(np.sum(mover_sign * rewards[1:], dtype=np.float64)),
    discount=config.targets.discount,
    signed_discount=search_discount(config.targets.discount, spec.num_players),
    num_simulations=num_simulations,
    frames=shown("frame"),
    pictures=np.stack(pictures) if len(pictures) == len(moments) else None,
    legal_actions_mask=shown("legal_actions_mask"),
    to_play=to_play,
    seat_sign=player_sign(to_play, np.int32(seat)),
    actions=actions,
    is_agents=is_agents,
    rewards=rewards,
    root_values=root_values,
    prior_values=thought("prior_value"),
    returns=_returns(rewards, root_values, to_play, is_terminal, config.targets.discount),
    prior_probs=thought("prior_probs"),
    action_probs=thought("action_probs"),
    q_values=thought("q_values"),
    network_q_values=np.stack([m.network_q_values for m in moments]),
    imagined_rewards=nothing,
    imagined_values=nothing,
    trees=tuple(trees),
  )


def _returns(
  rewards: np.ndarray, root_values: np.ndarray, to_play: np.ndarray, is_terminal: bool, discount: float
) -> np.ndarray:
  """The discounted return from each of T frames on, [T] float32: n-step returns that reach the last frame."""
  num = len(rewards)
  is_last = np.arange(2 * num) == num - 1
  rewards, root_values, to_play = (np.pad(x, (0, num)) for x in (rewards, root_values, to_play))
  is_truncated = is_last & (not is_terminal)
  return np.asarray(n_step_return(rewards, root_values, to_play, is_last, is_truncated, num, discount))


def _imagine(
  model: Model, config: Config, params: Params, net_state: NetState, hidden: np.ndarray, actions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """The model's rewards [T, K] and values [T, K] along the actions really taken from each frame on."""
  num, length = len(actions), config.targets.unroll_steps

  @jax.jit
  def unroll(hidden: Array, actions: Array) -> tuple[Array, Array]:
    def advance(state: Array, action: Array) -> tuple[Array, tuple[Array, Array]]:
      output, _ = model.recurrent_inference(params, net_state, state, action, False)
      scalars = (model.transform.to_scalar(x) for x in (output.reward_logits, output.value_logits))
      return output.hidden_state, tuple(scalars)  # type: ignore[return-value]

    return jax.lax.scan(advance, hidden, actions.T)[1]

  padded = np.concatenate([actions, np.full(length, DUMMY_ACTION, actions.dtype)])
  taken = np.stack([padded[k : k + num] for k in range(length)], axis=1)
  rewards, values = [], []
  for start in range(0, num, _UNROLL_BATCH):
    rows = np.minimum(np.arange(start, start + _UNROLL_BATCH), num - 1)
    reward, value = jax.device_get(unroll(hidden[rows], taken[rows]))
    rewards.append(reward.T)
    values.append(value.T)
  return np.concatenate(rewards)[:num], np.concatenate(values)[:num]
