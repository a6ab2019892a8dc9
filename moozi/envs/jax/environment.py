"""JAX environments step by step: behind the faces of `Environment` and of `SyncVectorEnvironment`.

Both step the same compiled functions with the same keys as `acting.rollout`, so that whoever wants to look
at every step (evaluation, random play, tests) sees the very environments that the compiled rollout plays in.
"""

import functools
from typing import Any

import jax
import numpy as np
from dm_env import StepType, TimeStep

from moozi.core.flat_state import State, tree_of_state, tree_state
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, Observation, check_action, check_seed
from moozi.envs.jax.rules import EnvState, JaxEnvironment, env_key, env_keys
from moozi.envs.vector import check_actions


@functools.partial(jax.jit, static_argnums=0)
def reset_envs(env: JaxEnvironment, rng_keys: Any) -> EnvState:
  """`environment.reset` of each of B keys, [B, 2] uint32."""
  return jax.vmap(env.reset)(rng_keys)


@functools.partial(jax.jit, static_argnums=0)
def _step_envs(env: JaxEnvironment, states: EnvState, actions: Any) -> EnvState:
  return jax.vmap(env.step)(states, actions)


@functools.partial(jax.jit, static_argnums=0)
def _reset_env(env: JaxEnvironment, rng_key: Any) -> EnvState:
  return env.reset(rng_key)


@functools.partial(jax.jit, static_argnums=0)
def _step_env(env: JaxEnvironment, state: EnvState, action: Any) -> EnvState:
  return env.step(state, action)


class JaxVectorEnvironment:
  """JAX environments side by side, with the face of `SyncVectorEnvironment`: NumPy in, NumPy out, actions
  checked.

  Args:
    environment: the environment.
    seeds: one for each copy of it, any non-negative integers.

  Raises: ValueError: where there is no seed, or a seed is negative.
  """

  # An environment here cannot fail alone.
  num_faults = 0

  def __init__(self, env: JaxEnvironment, seeds: list[int]) -> None:
    if not seeds:
      raise ValueError("seeds is empty: at least one environment is needed")
    self._env = env
    self._keys: Any = env_keys([check_seed(seed) for seed in seeds])
    self._state: EnvState | None = None
    self._legal_actions_mask = np.zeros((self.num_envs, env.spec.num_actions), bool)
    # Before the first reset every environment is as at an end: the first step resets them all.
    self._is_last = np.ones(self.num_envs, bool)

  @property
  def num_envs(self) -> int:
    """How many environments there are, B."""
    return len(self._keys)

  @property
  def spec(self) -> EnvSpec:
    """The facts that all the environments share."""
    return self._env.spec

  def reset(self) -> BatchedTimeStep:
    """Starts a new episode in every environment."""
    keys = self._keys if self._state is None else self._state.rng_key
    return self._show(reset_envs(self._env, keys))

  def step(self, actions: np.ndarray) -> BatchedTimeStep:
    """Steps every environment; those whose last frame was an end start a new episode instead.

    Args:
      actions: [B] integers in the agent's action space; read only where the last frame was no end.

    Returns: arrays that are not written to again; they cannot be written to here either.
    Raises: ValueError: where an action for a live frame is the dummy, out of range, or illegal. No
      environment
      has moved then.
    """
    actions = check_actions(actions, self._legal_actions_mask, self._is_last)
    if self._state is None:
      return self.reset()
    return self._show(_step_envs(self._env, self._state, actions.astype(np.int32)))

  def get_state(self) -> State:
    """The environments, as `set_state` takes them; they must have been reset."""
    return tree_state(self._state)

  def set_state(self, state: State, shown: BatchedTimeStep) -> tuple[BatchedTimeStep, np.ndarray]:
    """Takes the environments back to where they were; see `SyncVectorEnvironment.set_state`."""
    if self._state is None:
      self.reset()
    return self._show(jax.device_put(tree_of_state(self._state, state))), np.zeros(self.num_envs, bool)

  def render(self, i: int) -> np.ndarray | None:
    """Nothing: these environments have no picture of their own."""
    return None

  def close(self) -> None:
    """Nothing is open."""

  def _show(self, state: EnvState) -> BatchedTimeStep:
    self._state = state
    out: BatchedTimeStep = jax.device_get(state.timestep)
    self._legal_actions_mask, self._is_last = out.legal_actions_mask, out.is_last
    return out


class JaxDmEnvironment(Environment):
  """One JAX environment as an `Environment`. Runs on the host's processor: one environment is too small for a
  device.

  Args:
    environment: the environment. It begins seeded with 0.
  """

  def __init__(self, env: JaxEnvironment) -> None:
    self._env = env
    self._device = _host_device()
    self._state: EnvState | None = None
    self._legal_actions_mask = np.zeros(env.spec.num_env_actions, bool)
    self._is_last = True
    self.seed(0)

  @property
  def env_spec(self) -> EnvSpec:
    """The facts of this environment."""
    return self._env.spec

  def seed(self, seed: int) -> None:
    """See `Environment.seed`. The episode under way is given up: the next step resets."""
    self._key = jax.device_put(env_key(check_seed(seed)), self._device)
    self._is_last, self._state = True, None

  def reset(self) -> TimeStep:
    """Starts an episode; returns its FIRST step."""
    key = self._key if self._state is None else self._state.rng_key
    return self._show(_reset_env(self._env, key))

  def step(self, action: int) -> TimeStep:
    """Plays one of the environment's own actions; see `Environment.step`.

    Raises: ValueError: where the action is out of range or illegal; the environment has not moved then.
    """
    if self._is_last:
      return self.reset()
    checked = check_action(action, self._legal_actions_mask)
    return self._show(_step_env(self._env, self._state, np.int32(checked + 1)))

  def _show(self, state: EnvState) -> TimeStep:
    self._state = state
    row: BatchedTimeStep = jax.device_get(state.timestep)
    self._is_last = bool(row.is_last)
    self._legal_actions_mask = row.legal_actions_mask[1:]
    observation = Observation(row.frame, self._legal_actions_mask, int(row.to_play))
    if row.is_first:
      return TimeStep(StepType.FIRST, None, None, observation)
    kind = StepType.LAST if self._is_last else StepType.MID
    return TimeStep(kind, float(row.last_reward), float(row.last_discount), observation)


def _host_device() -> Any:
  """The processor's device; the default one where JAX was told to leave the processor out."""
  try:
    return jax.devices("cpu")[0]
  except RuntimeError:
    return jax.devices()[0]
