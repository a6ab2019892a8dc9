"""Adds up the rewards that an environment returns before wrappers change them; evaluation counts these."""

import contextlib
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
from dm_env import TimeStep

from moozi.envs.environment import Environment
from moozi.envs.validation import check_reward, warn_once
from moozi.envs.wrappers import EnvironmentWrapper


class RecordedStep:
  """The method `step` of an environment under wrappers, which adds up the rewards that it returns.

  Attributes:
    owner: the name of the environment's class.
    total: the sum of the rewards since `total` was last set.
  """

  # An object and not a closure: a deep copy of the environment then has a deep copy of its own method.
  def __init__(self, where: str, step: Callable[..., Any], owner: str) -> None:
    self._where, self._step, self.owner, self.total = where, step, owner, 0.0

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    out = self._step(*args, **kwargs)
    if isinstance(out, TimeStep):
      self.total += 0.0 if out.first() else check_reward(self._where, out.reward)
    elif isinstance(out, tuple) and len(out) > 1:  # of Gymnasium; another result fails in its wrappers
      self.total += check_reward(self._where, out[1])
    return out


def record_rewards(where: str, made: Any, has_wrappers: bool) -> RecordedStep | None:
  """Records the rewards of the innermost environment; call it before further wrappers are applied.

  The innermost environment of a `gymnasium.Env` is its `unwrapped`; for any other environment, it is that
  environment itself.

  Args:
    where: the start of error messages (`env.name=…`).

  Returns: the method that records. None if there are no wrappers that may change rewards, if the environment
    has `max_moves` or may have two players, or if its `step` cannot be replaced.
  """
  gymnasium = sys.modules.get("gymnasium")
  is_gymnasium = gymnasium is not None and isinstance(made, gymnasium.Env)
  inner = made.unwrapped if is_gymnasium else made
  may_change = has_wrappers or (is_gymnasium and _may_change_rewards(made))
  if not may_change or _is_left_alone(inner):
    return None
  with contextlib.suppress(AttributeError):  # an object with __slots__, or no environment at all
    inner.step = step = RecordedStep(where, inner.step, type(inner).__name__)
    return step
  return None


def counting_own_rewards(env: Environment, rewards: RecordedStep | None, is_testing: bool) -> Environment:
  """Returns `env`, in evaluation with the recorded rewards. Warns once if those of `env` differ from them."""
  if rewards is None or env.env_spec.num_players == 2:
    return env
  return _OwnRewards(env, rewards, is_testing)


class _OwnRewards(EnvironmentWrapper):
  def __init__(self, env: Environment, rewards: RecordedStep, is_testing: bool) -> None:
    super().__init__(env)
    self._rewards, self._is_testing = rewards, is_testing

  def step(self, action: int) -> TimeStep:
    self._rewards.total = 0.0  # without the rewards of steps that a wrapper makes in its reset
    step = self._env.step(action)
    if step.first():
      return step
    own = self._rewards.total
    if not math.isclose(own, step.reward, rel_tol=1e-5, abs_tol=1e-9):
      warn_once(
        f"env.name={self.env_spec.name}: wrappers change the rewards of {self._rewards.owner}; the agent is "
        f"trained on the changed rewards, and evaluation counts those of {self._rewards.owner} itself"
      )
    return step._replace(reward=own) if self._is_testing else step


def _may_change_rewards(env: Any) -> bool:
  """Returns whether a `gymnasium.Env` has wrappers other than those that `gymnasium.make` adds itself."""
  from gymnasium import Wrapper, wrappers

  own = (wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker)
  while type(env) in own:  # a subclass may change rewards
    env = env.env
  return isinstance(env, Wrapper)


def _is_left_alone(env: Any) -> bool:
  if isinstance(env, Environment):
    return env.env_spec.num_players == 2 or env.max_moves is not None
  if not isinstance(env, dm_env.Environment):
    return False
  spec = env.observation_spec()
  return "to_play" in spec if isinstance(spec, Mapping) else hasattr(spec, "to_play")
