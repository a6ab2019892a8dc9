"""Wrappers of environments: a step cap, random starts, and the user's own."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
from dm_env import StepType, TimeStep

from moozi.core import plugins, user_code
from moozi.core.errors import UserError, one_line
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, EpisodePlayer, check_seed, random_action
from moozi.envs.observations import OwnObservations


def apply_wrappers(env: Any, names: Sequence[str], is_testing: bool) -> Any:
  """Applies to an environment the functions that `env.wrappers` names, the first one innermost.

  A function with a parameter `is_testing` receives it.

  Raises: UserError: a function cannot be found, takes other arguments or fails, or does not return an
    environment.
  """
  for i, name in enumerate(names):
    wrapper, arguments = wrapper_of(name, i)
    if "is_testing" in arguments:
      raise UserError(
        f"{wrapper.where}: is_testing: not allowed; a function that takes it receives it from the run"
      )
    if user_code.takes(wrapper.function, "is_testing"):
      arguments["is_testing"] = is_testing
    signature = user_code.signature_of(wrapper.function)
    try:
      if signature is not None:
        signature.bind(env, **arguments)
    except TypeError as error:
      raise UserError(f"{wrapper.where}: its arguments do not fit: {error}") from None
    env = wrapper(env, **arguments)
    with wrapper.errors("its result cannot be read"):
      if not callable(getattr(env, "step", None)) or not callable(getattr(env, "reset", None)):
        raise UserError(f"{wrapper.where}: returns {type(env).__name__}; must return the wrapped environment")
  return env


def wrapper_of(value: str, index: int) -> tuple[user_code.Plugin, dict[str, Any]]:
  """Returns the function of `env.wrappers[index]` and its arguments: `NAME` or `NAME(key=value, …)`.

  Raises: UserError: the value has another form, or there is no such function.
  """
  key = f"env.wrappers[{index}]"
  try:
    name, arguments = user_code.split_call(value)
  except ValueError as error:
    raise UserError(f"{key}={error}") from None
  plugin = plugins.WRAPPERS.get(name, key)
  return dataclasses.replace(plugin, where=f"{key}={one_line(value, 120)}"), arguments


def depend_on_testing(values: Sequence[str]) -> bool:
  """Returns whether a function of `env.wrappers` takes `is_testing`. Raises UserError as `wrapper_of`."""
  return any(user_code.takes(wrapper_of(x, i)[0].function, "is_testing") for i, x in enumerate(values))


class EnvironmentWrapper(Environment):
  """Base class of wrappers: forwards everything to the wrapped environment.

  Args:
    env: the wrapped environment; a subclass may replace it (`self._env`).
  """

  def __init__(self, env: Environment) -> None:
    self._env = env

  @property
  def env_spec(self) -> EnvSpec:
    return self._env.env_spec

  def seed(self, seed: int) -> None:
    self._env.seed(seed)

  def reset(self) -> TimeStep:
    return self._env.reset()

  def step(self, action: int) -> TimeStep:
    return self._env.step(action)

  @property
  def will_continue(self) -> bool:
    return self._env.will_continue

  @property
  def max_moves(self) -> int | None:
    return self._env.max_moves

  @property
  def own_observations(self) -> OwnObservations | None:
    return self._env.own_observations

  def clone(self) -> Environment:
    return self._env.clone()

  def position(self) -> Any:
    return self._env.position()

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    return self._env.make_bot(kind, budget, seed)

  def render(self) -> np.ndarray | None:
    return self._env.render()

  def close(self) -> None:
    self._env.close()


class StepCap(EnvironmentWrapper):
  """Truncates episodes after a number of steps. A terminal step at the cap stays terminal.

  Args:
    max_steps: steps of an episode after its FIRST step. Where a lost life ends an episode in training, the
      cap counts the steps of the whole game.

  Raises: ValueError: max_steps is below 1.
  """

  def __init__(self, env: Environment, max_steps: int) -> None:
    if max_steps < 1:
      raise ValueError(f"max_steps={max_steps}: must be at least 1")
    super().__init__(env)
    self._max_steps = max_steps
    self._num_steps = 0
    self._needs_reset = True

  def reset(self) -> TimeStep:
    self._needs_reset = False
    step = self._env.reset()
    self._num_steps = self._num_steps + 1 if step.observation.is_continued else 0
    return step

  def step(self, action: int) -> TimeStep:
    if self._needs_reset:
      return self.reset()
    step = self._env.step(action)
    self._num_steps += 1
    if not step.last() and self._num_steps >= self._max_steps:
      step = dm_env.truncation(step.reward, step.observation)
    self._needs_reset = step.last()
    return step


class RandomStarts(EnvironmentWrapper):
  """Starts each episode with k random legal actions, k uniform in 0 … `max_random_starts`.

  The random actions and their rewards are not shown: the frame after them is FIRST. If the random actions end
  the episode, the next game starts with new random actions and a new k. The environment's own step cap counts
  the random actions. With two players, the parity of k decides which player moves at the FIRST frame. A reset
  that continues a game after a lost life has no random start.

  Args:
    max_random_starts: the largest k; 0 changes nothing.
    seed: seeds k and the random actions until the method `seed` is called. This argument does not seed the
      environment.

  Raises: ValueError: max_random_starts is negative; the seed is negative or not an integer.
  Source: Nair et al. 2015. Departures: random legal actions instead of no-ops.
  """

  def __init__(self, env: Environment, max_random_starts: int, seed: int = 0) -> None:
    if max_random_starts < 0:
      raise ValueError(f"max_random_starts={max_random_starts}: must not be negative")
    super().__init__(env)
    self._max_random_starts = max_random_starts
    self._random = _generator(seed)
    self._needs_reset = True

  def seed(self, seed: int) -> None:
    """Seeds the environment and the random starts; see `Environment.seed`."""
    super().seed(seed)
    self._random = _generator(seed)

  def reset(self) -> TimeStep:
    """Starts an episode and plays its random actions; returns the step after them as FIRST."""
    self._needs_reset = False
    step, spec = self._env.reset(), self.env_spec
    if step.observation.is_continued:
      return step
    while True:
      for _ in range(int(self._random.integers(self._max_random_starts + 1))):
        legal = step.observation.legal_actions_mask
        step = self._env.step(random_action(spec, legal, self._random))
        if step.last():
          break
      if not step.last():
        return dm_env.restart(step.observation)
      step = self._env.reset()
      if step.observation.is_continued:  # the random actions lost a life: a second reset starts a new game
        step = self._env.reset()

  def step(self, action: int) -> TimeStep:
    """Steps the environment; see `Environment.step`. A reset after an end is as `reset`."""
    if self._needs_reset:
      return self.reset()
    step = self._env.step(action)
    self._needs_reset = step.step_type is StepType.LAST
    return step


def _generator(seed: int) -> np.random.Generator:
  # These draws are independent of the environment's own, although both follow from one seed.
  return np.random.default_rng([check_seed(seed), 0x57A7])
