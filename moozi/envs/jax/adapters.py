"""JAX environments step by step: as an `Environment`, and as a `VectorEnvironment`.

Both derive the random keys as `acting.rollout` does, so with the same seeds and actions they play the same
episodes as the compiled rollout. They are for code that needs every step, such as evaluation.
"""

import functools
from typing import Any

import jax
import numpy as np
from dm_env import StepType, TimeStep
from jaxtyping import Array, UInt32

from moozi.core.flat_state import State, tree_of_state, tree_state
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, Observation, VectorEnvironment, check_action, check_seed
from moozi.envs.jax.rules import EnvState, JaxEnvironment, env_key, env_keys
from moozi.envs.vector import check_actions


@functools.partial(jax.jit, static_argnums=0)
def reset_envs(env: JaxEnvironment, rng_keys: UInt32[Array | np.ndarray, "B 2"]) -> EnvState:
  """Starts an episode of `env` from each key; returns the states, with a leading axis B."""
  return jax.vmap(env.reset)(rng_keys)


_step_envs = jax.jit(lambda env, states, actions: jax.vmap(env.step)(states, actions), static_argnums=0)
_reset_env = jax.jit(JaxEnvironment.reset, static_argnums=0)
_step_env = jax.jit(JaxEnvironment.step, static_argnums=0)


class JaxVectorEnvironment(VectorEnvironment):
  """B copies of a JAX environment. Takes NumPy arrays, checks actions, and returns read-only NumPy arrays.

  `set_state` restores every game.

  Args:
    seeds: one non-negative integer for each copy.

  Attributes:
    env: the JAX environment.
    keys: [B, 2] uint32, the key of each copy's first reset.

  Raises: ValueError: `seeds` is empty, or a seed is negative or not an integer.
  """

  def __init__(self, env: JaxEnvironment, seeds: list[int]) -> None:
    if not seeds:
      raise ValueError("seeds is empty: at least one environment is needed")
    super().__init__(env.spec, len(seeds))
    self.env = env
    self.keys: Any = env_keys([check_seed(seed) for seed in seeds])
    self._state: EnvState | None = None

  def reset(self) -> BatchedTimeStep:
    keys = self.keys if self._state is None else self._state.rng_key
    return self._show(reset_envs(self.env, keys))

  def step(self, actions: Any) -> BatchedTimeStep:
    actions = check_actions(actions, self.spec, self._legal_actions_mask, self._is_last)
    if self._state is None:
      return self.reset()
    return self._show(_step_envs(self.env, self._state, actions.astype(self.spec.action_dtype)))

  def positions(self) -> Any:
    assert self._state is not None, "reset first"
    return self._state.game

  def get_state(self) -> State:
    return tree_state(self._state)

  def set_state(self, state: State, shown: BatchedTimeStep) -> tuple[BatchedTimeStep, np.ndarray]:
    if self._state is None:
      self.reset()
    return self._show(jax.device_put(tree_of_state(self._state, state))), np.zeros(self.num_envs, bool)

  def _show(self, state: EnvState) -> BatchedTimeStep:
    self._state = state
    out: BatchedTimeStep = jax.device_get(state.timestep)
    self._legal_actions_mask, self._is_last = out.legal_actions_mask, out.is_last
    return out


class JaxDmEnvironment(Environment):
  """One JAX environment as an `Environment`. It runs on the CPU if JAX has that platform.

  Args:
    env: the environment; the constructor seeds it with 0.
  """

  def __init__(self, env: JaxEnvironment) -> None:
    self._env = env
    self._device = _host_device()
    self._state: EnvState | None = None
    self._legal_actions_mask = np.zeros(env.spec.mask_size, bool)
    self._is_last = True
    self.seed(0)

  @property
  def env_spec(self) -> EnvSpec:
    return self._env.spec

  def seed(self, seed: Any) -> None:
    """Seeds the environment; see `Environment.seed`. Drops the current episode: the next step resets."""
    self._key = jax.device_put(env_key(check_seed(seed)), self._device)
    self._is_last, self._state = True, None

  def reset(self) -> TimeStep:
    key = self._key if self._state is None else self._state.rng_key
    return self._show(_reset_env(self._env, key))

  def step(self, action: Any) -> TimeStep:
    """Plays one of the environment's own actions; see `Environment.step`.

    Raises: ValueError: the action is out of range or illegal; the environment has not moved.
    """
    if self._is_last:
      return self.reset()
    checked = check_action(action, self.env_spec, self._legal_actions_mask)
    assert self._state is not None
    action = np.asarray(self.env_spec.from_env(checked), self.env_spec.action_dtype)
    return self._show(_step_env(self._env, self._state, action))

  def position(self) -> Any:
    assert self._state is not None, "reset first"
    return jax.device_get(self._state.game)

  def _show(self, state: EnvState) -> TimeStep:
    self._state = state
    row: BatchedTimeStep = jax.device_get(state.timestep)
    self._is_last = bool(row.is_last)
    self._legal_actions_mask = row.legal_actions_mask[1:]
    observation = Observation(row.frame, self._legal_actions_mask, int(row.to_play))
    if row.is_first:
      return TimeStep(StepType.FIRST, None, None, observation)
    kind = StepType.LAST if self._is_last else StepType.MID
    discount = 0.0 if self._is_last and not row.is_truncated else 1.0
    return TimeStep(kind, float(row.last_reward), discount, observation)


def _host_device() -> jax.Device:
  """Returns the CPU's device, or the default device if JAX runs without the CPU platform."""
  try:
    return jax.devices("cpu")[0]
  except RuntimeError:
    return jax.devices()[0]
