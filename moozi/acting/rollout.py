"""The compiled rollout: history, search, choice, environment and reset as one scan on the device.

For environments written in JAX (`envs.jax.rules`). It yields the same segments as `acting.collector` does
with
`JaxVectorEnvironment`, from the same seeds: both draw the same keys in the same order and apply the same
policy and the same step. Nothing is done on the host between the first step of a segment and the last.

Source: Hessel et al. 2021 (Podracer, "Anakin") has acting and environment in one compiled function.
  Departure: the
learner is apart, behind replay.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.acting.collector import HeldParameters
from moozi.acting.lanes import ActingResult
from moozi.acting.search_metrics import search_metrics
from moozi.agent.policy import Policy, make_policy
from moozi.core.config import Config, PlannerConfig
from moozi.core.flat_state import State, tree_of_state, tree_state
from moozi.core.pytree import fields_of, record, replace
from moozi.core.records import TrajectorySample
from moozi.envs.jax.environment import reset_envs
from moozi.envs.jax.rules import EnvState, JaxEnvironment, env_keys
from moozi.envs.vector import check_actions
from moozi.nn.model import Model
from moozi.ops.history import HistoryState, init_history
from moozi.ops.players import player_sign
from moozi.ops.schedules import temperature_at

Array = Any


@record
class RolloutState:
  """All that a rollout carries from step to step, on the device.

  Attributes:
    environments: EnvState of B environments.
    history: HistoryState of B lanes.
    rng_key: [2] uint32, of the search's noise and the choice of actions.
    episode_return: [B] float32, sum of rewards of the episode under way; `acting.collector` sums in float64.
    episode_length: [B] int32, its steps.
  """

  worlds: EnvState
  history: HistoryState
  rng_key: Array
  episode_return: Array
  episode_length: Array


@record
class Segment:
  """What one compiled call hands to the host.

  Attributes:
    steps: StepSample's fields by name, but for the versions, each [T, B, …].
    has_ended: [T, B] bool, a new game began in the step that was made at t.
    episode_return, episode_length: [T, B], of the game before it.
    metrics: scalars by name, means over the T steps.
  """

  steps: dict[str, Array]
  has_ended: Array
  episode_return: Array
  episode_length: Array
  metrics: dict[str, Array]


SegmentFn = Callable[[Any, Any, RolloutState, Array], tuple[RolloutState, Segment]]


def make_segment(policy: Policy, env: JaxEnvironment, segment_length: int) -> SegmentFn:
  """Returns segment(params, net_state, state, temperature) -> (state, Segment), to be compiled."""

  def segment(
    params: Any, net_state: Any, state: RolloutState, temperature: Array
  ) -> tuple[RolloutState, Segment]:
    def step(state: RolloutState, _: None) -> tuple[RolloutState, tuple[Any, ...]]:
      rng_key, key = jax.random.split(state.rng_key)
      shown = state.worlds.timestep
      history, output = policy(params, net_state, state.history, shown, key, temperature)
      steps = fields_of(shown) | {
        "root_value": output.root_value,
        "action_probs": output.action_probs,
        "action": output.action,
      }
      worlds = jax.vmap(env.step)(state.worlds, output.action)
      # A game is told when the next one begins, as `collector` does; with two players it is player 0's.
      has_ended = worlds.timestep.is_first
      reward = player_sign(shown.to_play, 0) * worlds.timestep.last_reward
      ended = state.episode_return, state.episode_length
      state = RolloutState(
        worlds=worlds,
        history=history,
        rng_key=rng_key,
        episode_return=jnp.where(has_ended, 0.0, state.episode_return + reward),
        episode_length=jnp.where(has_ended, 0, state.episode_length + ~shown.is_last),
      )
      return state, (steps, has_ended, *ended, search_metrics(shown, output))

    state, (steps, has_ended, episode_return, episode_length, metrics) = jax.lax.scan(
      step, state, length=segment_length
    )
    return state, Segment(
      steps=steps,
      has_ended=has_ended,
      episode_return=episode_return,
      episode_length=episode_length,
      metrics={name: jnp.mean(values) for name, values in metrics.items()},
    )

  return segment


class RolloutCollector:
  """Collects segments with a compiled rollout; has the face of `acting.collector.TrajectoryCollector`.

  Each compiles its own: several in one process (`run.local`, several workers) take as many times as long.

  Args:
    model: the network.
    config: the run's configuration.
    planner: which of its searches to act with.
    environment: the environment.
    env_seeds: B seeds, one for each copy of the environment.
    seed: of the search's noise and the choice of actions.
    policy: acts in place of `planner`'s search, which is the default.
  """

  def __init__(
    self,
    model: Model,
    config: Config,
    planner: PlannerConfig,
    env: JaxEnvironment,
    env_seeds: list[int],
    seed: int,
    policy: Policy | None = None,
  ) -> None:
    self._planner, self._env = planner, env
    self._lead = (config.workers.segment_length, len(env_seeds))
    policy = policy or make_policy(model, planner, config.targets, env.spec)
    # The old state is given up: environments and histories are by far the largest arrays here.
    self._segment = jax.jit(make_segment(policy, env, self._lead[0]), donate_argnums=2)
    self._state = RolloutState(
      worlds=reset_envs(env, env_keys(env_seeds)),
      history=jax.device_put(init_history(len(env_seeds), config.targets.history_length, env.spec)),
      rng_key=jax.random.PRNGKey(seed),
      episode_return=jnp.zeros(len(env_seeds), jnp.float32),
      episode_length=jnp.zeros(len(env_seeds), jnp.int32),
    )
    self._held = HeldParameters()

  @property
  def version(self) -> int:
    """Learner step of the parameters in use; -1 before the first."""
    return self._held.version

  def set_parameters(self, params: Any, net_state: Any, version: int) -> None:
    """Takes parameters (arrays or NumPy); a version already in use costs nothing."""
    self._held.set(params, net_state, version)

  def run(self, env_steps: int) -> tuple[TrajectorySample, ActingResult]:
    """Acts `segment_length` vector steps; see `TrajectoryCollector.run`.

    Raises: ValueError: the policy took an action that cannot be played. The environments have moved on by
      then:
      what they did means nothing, and this collector is of no more use.
    """
    temperature = temperature_at(self._planner.temperature, env_steps)
    start = time.perf_counter()
    self._state, on_device = self._segment(
      self._held.params, self._held.net_state, self._state, jnp.float32(temperature)
    )
    segment: Segment = jax.device_get(on_device)
    _check_actions(segment.steps)
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
    )
    return TrajectorySample(**segment.steps, acted_version=version, searched_version=version), result

  def get_state(self) -> State:
    """Environments, histories and random state; see `TrajectoryCollector.get_state`."""
    return tree_state(self._state)

  def set_state(self, state: State) -> int:
    """Goes on from where another collector was; see `TrajectoryCollector.set_state`."""
    self._state = jax.device_put(tree_of_state(self._state, state))
    return 0

  def reset(self) -> None:
    """Begins a new game in every environment."""
    state = self._state
    self._state = replace(
      state,
      worlds=reset_envs(self._env, state.worlds.rng_key),
      episode_return=jnp.zeros_like(state.episode_return),
      episode_length=jnp.zeros_like(state.episode_length),
    )

  def close(self) -> None:
    """Does nothing: compiled environments hold nothing outside this process."""


def _check_actions(steps: dict[str, Array]) -> None:
  """Raises ValueError where an action in a segment, [T, B, …], could not be played on its live frame."""
  for t, row in enumerate(zip(steps["action"], steps["legal_actions_mask"], steps["is_last"], strict=True)):
    try:
      check_actions(*row)
    except ValueError as error:
      raise ValueError(f"step {t} of the segment: {error}") from None
