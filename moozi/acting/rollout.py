"""The compiled rollout: a scan on the device over the agent, the environment and its resets.

The environment must be written in JAX (`envs.jax.rules`). With the same seeds, the segments equal those of
`acting.collector` with `JaxVectorEnvironment`: both draw the same keys in the same order and apply the same
agent and step. On some processors the two round values and policies differently. The host does nothing
between the first and the last step of a segment.

Source: Hessel et al. 2021 (Podracer, "Anakin") compile acting and environment as one function. Departure:
learning is not part of that function.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped, UInt32

from moozi.acting.collector import HeldParameters, Schedule, acting_metrics
from moozi.acting.lanes import ActingResult
from moozi.agent.agent import Carry, Decision, KeyedAct, PureAgent, keyed
from moozi.core.flat_state import State, tree_of_state, tree_state
from moozi.core.pytree import fields_of, record, replace
from moozi.core.records import BatchedTimeStep, TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.envs.jax.adapters import JaxVectorEnvironment, reset_envs
from moozi.envs.jax.rules import EnvState, JaxEnvironment
from moozi.envs.vector import check_actions
from moozi.ops.signs import player_sign


@record
class RolloutState:
  """The state of a rollout between steps, on the device.

  Attributes:
    envs: EnvState of B environments.
    carry: the agent's carry of B lanes.
    rng_key: the random key of the agent's noise and the choice of actions.
    episode_return: return of the current episode so far, of player 0; float32 (in `acting.lanes`: float64).
    episode_length: number of steps of the current episode.
  """

  envs: EnvState
  carry: Carry
  rng_key: UInt32[Any, "2"]
  episode_return: Float[Any, "B"]
  episode_length: Int[Any, "B"]


@record
class Segment:
  """The result of one compiled call.

  Attributes:
    steps: StepSample's fields by name, without the versions, each [T, B, …].
    has_ended: whether a new episode begins in the step after t.
    episode_return, episode_length: those of the episode that ended; valid where `has_ended` is true.
    metrics: scalars by name, means over the T steps and the lanes.
    extras: the extras of the decisions by name; empty if they are not kept.
  """

  steps: dict[str, Shaped[Any, "T B ..."]]
  has_ended: Bool[Any, "T B"]
  episode_return: Float[Any, "T B"]
  episode_length: Int[Any, "T B"]
  metrics: dict[str, Float[Any, ""]]
  extras: dict[str, Shaped[Any, "T B ..."]]


SegmentFn = Callable[[PyTree, RolloutState, Array], tuple[RolloutState, Segment]]


def make_segment(
  agent: PureAgent, env: JaxEnvironment, segment_length: int, keeps_extras: bool = False
) -> SegmentFn:
  """Returns segment(variables, state, temperature) -> (state, Segment), which the caller compiles."""
  act = keyed(agent)

  def segment(variables: PyTree, state: RolloutState, temperature: Array) -> tuple[RolloutState, Segment]:
    def step(state: RolloutState, _: None) -> tuple[RolloutState, tuple[Any, ...]]:
      timestep = state.envs.timestep
      position = state.envs.game if agent.plans_with_rules else None
      rng_key, carry, decision = act(
        variables, state.carry, timestep, state.rng_key, temperature, None, position
      )
      steps = fields_of(timestep) | {
        "root_value": decision.root_value,
        "action_probs": decision.action_probs,
        "action": decision.action,
      }
      envs = jax.vmap(env.step)(state.envs, decision.action)
      # As in `Lanes`, an episode is reported when the next one begins, and the return is player 0's.
      has_ended = envs.timestep.is_first
      reward = player_sign(timestep.to_play, 0) * envs.timestep.last_reward
      ended = state.episode_return, state.episode_length
      state = RolloutState(
        envs=envs,
        carry=carry,
        rng_key=rng_key,
        episode_return=jnp.where(has_ended, 0.0, state.episode_return + reward),
        episode_length=jnp.where(has_ended, 0, state.episode_length + ~timestep.is_last),
      )
      extras = decision.extras if keeps_extras else {}
      metrics = acting_metrics(timestep, decision, env.spec.policy_groups)
      return state, (steps, has_ended, *ended, metrics, extras)

    state, (steps, has_ended, episode_return, episode_length, metrics, extras) = jax.lax.scan(
      step, state, length=segment_length
    )
    return state, Segment(
      steps=steps,
      has_ended=has_ended,
      episode_return=episode_return,
      episode_length=episode_length,
      metrics={name: jnp.mean(values) for name, values in metrics.items()},
      extras=extras,
    )

  return segment


class RolloutCollector(HeldParameters):
  """Collects segments with a compiled rollout; has the interface of `TrajectoryCollector`.

  Each collector compiles its own rollout, even if several share a process (`run.local`).

  Args:
    env: B copies of the environment; the constructor resets them.
    The others are as in `TrajectoryCollector`.
  """

  def __init__(
    self,
    agent: PureAgent,
    env: JaxVectorEnvironment,
    segment_length: int,
    temperature: Schedule,
    seed: int,
    keeps_extras: bool = False,
  ) -> None:
    self._temperature, self._env = temperature, env.env
    num_envs = env.num_envs
    self._lead = (segment_length, num_envs)
    # Donates the old state: environments and carries are by far the largest arrays.
    self._segment = jax.jit(make_segment(agent, env.env, segment_length, keeps_extras), donate_argnums=1)
    self._plans_with_rules = agent.plans_with_rules
    self._act: KeyedAct = jax.jit(keyed(agent))
    self._state = RolloutState(
      envs=reset_envs(env.env, env.keys),
      carry=jax.device_put(agent.init(num_envs)),
      rng_key=jax.random.PRNGKey(seed),
      episode_return=jnp.zeros(num_envs, jnp.float32),
      episode_length=jnp.zeros(num_envs, jnp.int32),
    )

  def warm_up(self, template: PyTree) -> None:
    """Compiles the rollout with a segment that is discarded; see `TrajectoryCollector.warm_up`."""
    self.set_zeros(template)
    state = jax.tree_util.tree_map(lambda x: jnp.array(x, copy=True), self._state)
    self._segment(self.variables, state, jnp.float32(1))

  def run(self, env_steps: int) -> tuple[TrajectorySample, ActingResult]:
    """Acts for `segment_length` vector steps; see `TrajectoryCollector.run`.

    Raises: ValueError: the agent chose an illegal action. The environments have already played this action,
      so the collector cannot be used afterwards.
    """
    temperature = self._temperature(env_steps)
    start = time.perf_counter()
    self._state, on_device = self._segment(self.variables, self._state, jnp.float32(temperature))
    segment: Segment = jax.device_get(on_device)
    _check_actions(segment.steps, self._env.spec)
    elapsed = time.perf_counter() - start
    num_steps = self._lead[0] * self._lead[1]
    version = np.full(self._lead, self.version, np.int32)
    metrics = {name: float(value) for name, value in segment.metrics.items()}
    metrics |= {"train/temperature": float(temperature), "train/worker_steps_per_s": num_steps / elapsed}
    result = ActingResult(
      num_steps=num_steps,
      version=self.version,
      episode_returns=segment.episode_return[segment.has_ended].astype(np.float64),
      episode_lengths=segment.episode_length[segment.has_ended].astype(np.int64),
      metrics=metrics,
      extras=segment.extras,
    )
    return TrajectorySample(**segment.steps, acted_version=version, searched_version=version), result

  def look_ahead(self, env_steps: int) -> tuple[BatchedTimeStep, Decision]:
    """Returns the frames after the last segment and the decision on them; see `TrajectoryCollector`."""
    state, temperature = self._state, jnp.float32(self._temperature(env_steps))
    timestep, position = state.envs.timestep, state.envs.game if self._plans_with_rules else None
    *_, decision = self._act(
      self.variables, state.carry, timestep, state.rng_key, temperature, None, position
    )
    return jax.device_get((timestep, decision))

  def get_state(self) -> State:
    """Returns the `RolloutState` as arrays by name."""
    return tree_state(self._state)

  def set_state(self, state: State) -> int:
    """Restores the state of another collector; see `TrajectoryCollector.set_state`."""
    self._state = jax.device_put(tree_of_state(self._state, state))
    return 0

  def reset(self) -> None:
    """Starts a new episode in every environment."""
    state = self._state
    self._state = replace(
      state,
      envs=reset_envs(self._env, state.envs.rng_key),
      episode_return=jnp.zeros_like(state.episode_return),
      episode_length=jnp.zeros_like(state.episode_length),
    )

  def close(self) -> None:
    """Does nothing: compiled environments have no resources outside this process."""


def _check_actions(steps: dict[str, Shaped[Any, "T B ..."]], spec: EnvSpec) -> None:
  """Raises ValueError if a segment [T, B, …] has an illegal action on a live frame."""
  rows = zip(steps["action"], steps["legal_actions_mask"], steps["is_last"], strict=True)
  for t, (action, legal, is_last) in enumerate(rows):
    try:
      check_actions(action, spec, legal, is_last)
    except ValueError as error:
      raise ValueError(f"step {t} of the segment: {error}") from None
