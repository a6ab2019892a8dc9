"""Tests of environments and functions of a user that are passed as objects instead of names."""

import dm_env
import numpy as np
import pytest

import moozi
from moozi.core.errors import UserError

gymnasium = pytest.importorskip("gymnasium")
from gymnasium import spaces  # noqa: E402


class Hall(gymnasium.Env):
  action_space = spaces.Discrete(2)
  observation_space = spaces.Discrete(2)


class Lamp(dm_env.Environment):
  def reset(self):
    raise NotImplementedError

  def step(self, action):
    raise NotImplementedError

  def observation_spec(self):
    return dm_env.specs.Array((2,), np.float32)

  def action_spec(self):
    return dm_env.specs.DiscreteArray(2)


class Nim(moozi.Game):
  pass


def make():
  spec = moozi.EnvSpec(name="nim", frame_shape=(1, 1, 2), frame_dtype="bool", num_env_actions=2)
  return moozi.GameEnvironment(Nim(), spec)


def make_vector():
  return gymnasium.vector.SyncVectorEnv([Hall])


@pytest.mark.parametrize(
  ("maker", "what", "hint"),
  [
    (Hall, "an object of tests.api.test_own_objects.Hall", ", of a function that makes it"),
    (Lamp, "an object of tests.api.test_own_objects.Lamp", ", of a function that makes it"),
    (
      make,
      "an object of moozi.envs.game.GameEnvironment",
      ", of a function that makes it",
    ),
    (Nim, "an object of tests.api.test_own_objects.Nim", "moozi.GameEnvironment(game, env_spec)"),
    (
      make_vector,
      "SyncVectorEnv",
      "makes a single environment (workers.num_envs is their number)",
    ),
    (
      lambda: Hall,
      "the class tests.api.test_own_objects.Hall",
      "must be a name: name=module:function",
    ),
    (lambda: make, "the function make", "must be a name: name=module:function"),
    (lambda: lambda: None, "the function <lambda>", "must be a name: name=module:function"),
  ],
)
def test_an_environment_instead_of_its_name(maker, what, hint):
  made = maker()
  register = 'name=module:function, or name=own after moozi.register_environment("own")(function)'
  for call in (
    lambda: moozi.train("tiny/catch", env=made),
    lambda: moozi.train("tiny/catch", env={"name": made}),
    lambda: moozi.train("tiny/catch", **{"env.name": made}),
    lambda: moozi.train({"env": {"name": made}}),
    lambda: moozi.train(made),
    lambda: moozi.make_env(made),
    lambda: moozi.arena(made, ["random", "mcts:10"]),
  ):
    with pytest.raises(UserError) as caught:
      call()
    text = str(caught.value)
    assert "env.name: is " in text
    assert what in text
    assert hint in text
    assert text.endswith(register)
    assert "\n" not in text


@pytest.mark.parametrize(
  ("overrides", "message"),
  [
    ({"env": {"wrappers": [print]}}, "env.wrappers[0]: is an object of builtins.builtin_function"),
    ({"network": {"kind": make}}, 'kind=own after moozi.register_network("own")(function)'),
    ({"planners": {"train": {"algorithm": make}}}, "moozi.register_search"),
    (
      {"learner.extra_losses": [make]},
      "learner.extra_losses[0]: is the function make; must be",
    ),
    (
      {"evaluation.opponent": Nim},
      "evaluation.opponent: is the class tests.api.test_own_objects.Nim",
    ),
    ({"env.kwargs": {"reward": make}}, "env.kwargs.reward: is the function make; only plain"),
  ],
)
def test_a_function_instead_of_its_name(overrides, message):
  with pytest.raises(UserError) as caught:
    moozi.train("tiny/catch", **overrides)
  assert message in str(caught.value)
