"""Tests of the rewards that count in evaluation, and of `is_testing` for a user's functions."""

import copy
import logging

import numpy as np
import pytest

from moozi.core import plugins
from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.own_rewards import record_rewards
from moozi.envs.validation import warn_once
from tests.envs.suites.user_fakes import Counter

gymnasium = pytest.importorskip("gymnasium")
from gymnasium import spaces, wrappers  # noqa: E402

from tests.envs.ring import Ring  # noqa: E402

HERE = "tests.envs.test_own_rewards"


@pytest.fixture(autouse=True)
def _clean(folder):
  """Forgets the plug-ins and warnings of a test."""
  warn_once.cache_clear()


def normalized():
  return wrappers.NormalizeReward(Ring())


def clipped():
  return wrappers.TransformReward(Ring(scale=5.0), np.sign)


class Bonus(gymnasium.Wrapper):
  """Shapes the reward, and skips frames: two steps of the environment for one of the agent."""

  def step(self, action):
    first = self.env.step(action)
    if first[2]:
      return first
    second = self.env.step(action)
    return second[0], first[1] + second[1] + 100.0, *second[2:]


class StepsInReset(gymnasium.Wrapper):
  def reset(self, **arguments):
    self.env.reset(**arguments)
    observation, *_, info = self.env.step(0)
    return observation, info


def skipping():
  return Bonus(Ring())


def stepping_in_reset():
  return wrappers.TransformReward(StepsInReset(Ring()), lambda reward: 3 * reward)


class Rewarding(gymnasium.Env):
  """Defines its own task on another environment, so it is no wrapper."""

  action_space, observation_space = Ring.action_space, Ring.observation_space

  def __init__(self):
    self._env = Ring()

  def reset(self, *, seed=None, options=None):
    return self._env.reset(seed=seed)

  def step(self, action):
    observation, reward, *rest = self._env.step(action)
    return observation, 7 * reward, *rest


def best_return(env) -> float:
  """Plays one episode with the best actions; returns its return."""
  step, total = env.reset(), 0.0
  while not step.last():
    step = env.step(int(step.observation.frame.argmax()) % 2)
    total += step.reward
  return total


@pytest.mark.parametrize(
  ("function", "expected"),
  [
    ("normalized", 8),
    ("clipped", 40),
    ("skipping", 4),
    ("stepping_in_reset", 7),
    ("Rewarding", 56),
    ("Ring", 8),
  ],
)
def test_evaluation_counts_the_environments_own_rewards(function, expected):
  env = registry.make(f"{HERE}:{function}", seed=0, is_testing=True)
  assert [best_return(env) for _ in range(3)] == [expected] * 3


def test_training_has_the_wrapped_rewards_and_a_warning(caplog):
  with caplog.at_level(logging.WARNING, "moozi.envs"):
    assert registry.env_spec(f"{HERE}:normalized").num_env_actions == 2
    assert best_return(registry.make(f"{HERE}:clipped", seed=0)) == 8.0
    assert best_return(registry.make(f"{HERE}:Rewarding", seed=0)) == 56.0
  texts = [record.getMessage() for record in caplog.records]
  assert len(texts) == 2  # once for each name
  assert "wrappers change the rewards of Ring; " in texts[0]
  assert "evaluation counts those of Ring itself" in texts[0]


def test_running_statistics_of_observations_are_named(caplog):
  plugins.register_environment("normalized")(lambda: wrappers.NormalizeObservation(Ring()))
  plugins.register_environment("constant")(
    lambda: wrappers.TransformObservation(Ring(), lambda x: x - 0.25, Ring.observation_space)
  )
  with caplog.at_level(logging.WARNING, "moozi.envs"):
    registry.make("constant", seed=0)
    assert not caplog.records
    for seed in range(2):
      registry.make("normalized", seed=seed)
  (record,) = caplog.records
  assert "env.name=normalized: NormalizeObservation has its own running statistics" in record.getMessage()


def doubled(env):
  """Doubles the rewards of an environment of dm_env in place, or of Gymnasium by a wrapper."""
  if isinstance(env, gymnasium.Env):
    return wrappers.TransformReward(env, lambda reward: 2 * reward)
  step = env.step
  env.step = lambda action: (out := step(action))._replace(
    reward=2 * out.reward if out.reward else out.reward
  )
  return env


class Steady(Counter):
  def step(self, action):
    out = super().step(action)
    return out if out.first() else out._replace(reward=1.0)


@pytest.mark.parametrize("name", ["gymnasium:CartPole-v1", f"{HERE}:Steady", f"{HERE}:Ring"])
def test_wrappers_of_the_configuration_do_not_count(name):
  returns = {}
  for is_testing in (False, True):
    env = registry.make(name, seed=0, is_testing=is_testing, wrappers=[f"{HERE}:doubled"])
    env.reset()
    returns[is_testing] = sum(env.step(0).reward for _ in range(5))
  assert returns[False] == 2 * returns[True] > 0


class Generous(wrappers.TimeLimit):
  """Doubles the rewards, in a subclass of a wrapper that does not change them."""

  def step(self, action):
    observation, reward, *rest = super().step(action)
    return observation, 2 * reward, *rest


def limited(env):
  return wrappers.TimeLimit(wrappers.OrderEnforcing(wrappers.PassiveEnvChecker(env)), 50)


@pytest.mark.parametrize(
  ("wrap", "is_recorded"),
  [
    (lambda env: env, False),
    (limited, False),
    (lambda env: Generous(env, 50), True),
    (lambda env: limited(Bonus(env)), True),
    (lambda env: Bonus(limited(env)), True),
  ],
)
def test_rewards_are_recorded_only_under_wrappers_that_may_change_them(wrap, is_recorded):
  env = wrap(Ring())
  assert (record_rewards("env.name=x", env, has_wrappers=False) is not None) == is_recorded
  assert record_rewards("env.name=x", env, has_wrappers=True) is not None


def test_a_copy_of_an_environment_steps_itself():
  env = clipped()
  plugins.register_environment("held")(lambda: env)
  registry.make("held", seed=0, is_testing=True).reset()
  other = copy.deepcopy(env)
  other.step(0)
  assert (env.unwrapped.time, other.unwrapped.time) == (0, 1)


# --- is_testing -----------------------------------------------------------------------------------------


def with_testing(seed=None, is_testing=False):
  return Ring(scale=100.0 if is_testing else 1.0)


def with_anything(**settings):
  assert not settings
  return Ring()


def test_functions_learn_whether_they_are_for_evaluation():
  plugins.register_environment("kept")(lambda *, is_testing: with_testing(None, is_testing))
  for name in (f"{HERE}:with_testing", "kept"):
    assert best_return(registry.make(name, seed=0)) == 8.0
    assert best_return(registry.make(name, seed=0, is_testing=True)) == 800.0
    assert registry.env_spec(name).num_env_actions == 2
  assert best_return(registry.make(f"{HERE}:with_anything", seed=0, is_testing=True)) == 8.0


class Shorter(gymnasium.Wrapper):
  def __init__(self, env, length):
    super().__init__(env)
    self.unwrapped.length = length


def shorter(env, is_testing):
  return Shorter(env, 2 if is_testing else 4)


@pytest.mark.parametrize("name", [f"{HERE}:Ring", "gymnasium:moozi-tests/Ring-v0"])
def test_wrappers_learn_whether_they_are_for_evaluation(name):
  gymnasium.register("moozi-tests/Ring-v0", entry_point=Ring)
  try:
    wrapped = {"wrappers": [f"{HERE}:shorter"]}
    assert best_return(registry.make(name, seed=0, **wrapped)) == 4.0
    assert best_return(registry.make(name, seed=0, is_testing=True, **wrapped)) == 2.0
    assert registry.env_spec(name, **wrapped).num_env_actions == 2
  finally:
    del gymnasium.registry["moozi-tests/Ring-v0"]


def smaller(is_testing):
  return Ring(action_space=spaces.Discrete(2 + is_testing))


def failing(is_testing):
  return 1 / 0 if is_testing else Ring()


@pytest.mark.parametrize(
  ("function", "message"),
  [
    ("smaller", "must not depend on is_testing; num_env_actions was 2 and is 3 in evaluation"),
    ("failing", r"test_own_rewards.py:\d+: ZeroDivisionError"),
  ],
)
def test_the_environment_for_evaluation_is_tried_too(function, message):
  with pytest.raises(UserError, match=rf"env.name={HERE}:{function}: .*{message}"):
    registry.env_spec(f"{HERE}:{function}")


def test_is_testing_among_the_kwargs():
  with pytest.raises(
    UserError, match=r"env.kwargs.is_testing=True: not allowed; .* if it has a parameter is_tes"
  ):
    registry.env_spec(f"{HERE}:Ring", is_testing=True)
  with pytest.raises(
    UserError, match=r"env.wrappers\[0\]=.*shorter\(is_testing=true\): is_testing: not allowed"
  ):
    registry.env_spec(f"{HERE}:Ring", wrappers=[f"{HERE}:shorter(is_testing=true)"])
