"""Tests of the names of actions and observations that third-party environments give."""

import enum
import logging

import dm_env
import numpy as np
import pytest
from dm_env import specs

from moozi.envs import registry
from moozi.envs.names import action_names, entry_names
from moozi.vis.frames import vector_text

gymnasium = pytest.importorskip("gymnasium")
from gymnasium import spaces  # noqa: E402

pytestmark = pytest.mark.usefixtures("folder")
HERE = "tests.envs.test_names"


class Robot(gymnasium.Env):
  """Observes a Dict, in which every entry has its own value."""

  action_space = spaces.Discrete(3, start=1)
  observation_space = spaces.Dict(
    speed=spaces.Box(-np.inf, np.inf, (1,)),
    at=spaces.Box(-np.inf, np.inf, (2,)),
    goal=spaces.Discrete(2, start=5),
    inner=spaces.Dict(keys=spaces.MultiDiscrete([2, 3]), flags=spaces.MultiBinary((1, 2))),
  )

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    inner = {"keys": np.array([1, 2]), "flags": np.array([[0, 1]], np.int8)}
    at = np.array([20, 30], np.float32)
    return {"speed": np.array([10], np.float32), "at": at, "goal": np.int64(6), "inner": inner}, {}

  def step(self, action):
    return self.reset()[0], 0.0, True, False, {}


class Meanings(Robot):
  def get_action_meanings(self):
    return ["NOOP", "FIRE", "UP"]


class Named(Meanings):
  action_names = ("none", "shoot", "up")


class Moves(enum.IntEnum):
  up = 2
  left = 0
  right = 1


class Mini(Robot):
  actions = Moves


@pytest.mark.parametrize(
  ("env", "names"),
  [
    (Robot(), ("1", "2", "3")),
    (Meanings(), ("NOOP", "FIRE", "UP")),
    (Named(), ("none", "shoot", "up")),
    (Mini(), ("left", "right", "up")),
    (gymnasium.wrappers.TimeLimit(Named(), 5), ("none", "shoot", "up")),
    # A wrapper of actions may reorder them.
    (gymnasium.wrappers.TransformAction(Named(), lambda a: 4 - a, spaces.Discrete(3)), ("1", "2", "3")),
  ],
)
def test_names_of_actions(env, names):
  assert action_names("env.name=x", env, 3, 1) == names


def raises():
  raise RuntimeError("no\nmeanings")


@pytest.mark.parametrize(
  ("attributes", "message"),
  [
    ({"action_names": ["a", "b"]}, "action_names: ['a', 'b']: must be 3 texts"),
    ({"action_names": "abc"}, "action_names: 'abc': must be 3 texts"),
    ({"action_names": {"left": 0, "right": 1, "up": 2}}, "action_names: {'left': 0"),
    ({"action_names": [1, 2, 3]}, "action_names: [1, 2, 3]: must be 3 texts"),
    ({"action_names": ["a", "\x1b[2J", "b"]}, "must be 3 texts that can be printed"),
    ({"action_names": 3}, "action_names: TypeError"),
    ({"get_action_meanings": raises}, "get_action_meanings: RuntimeError: no meanings"),
    ({"actions": enum.Enum("A", {"up": "x", "down": "y", "left": "z"})}, None),
    ({"actions": [0, 1, 2]}, None),
  ],
)
def test_names_that_do_not_fit_are_left_out(caplog, attributes, message):
  env = Robot()
  for key, value in attributes.items():
    setattr(env, key, value)
  with caplog.at_level(logging.WARNING, "moozi.envs"):
    assert action_names(f"env.name={attributes}", env, 3, 1) == ("1", "2", "3")
  if message is None:
    assert not caplog.records
  else:
    (record,) = caplog.records
    assert message in record.getMessage()
    assert "\n" not in record.getMessage()


def test_entries_of_a_dictionary_have_the_names_of_their_keys():
  env = registry.make(f"{HERE}:Robot", seed=0)
  spec, frame = env.env_spec, env.reset().observation.frame
  shown = dict(zip(spec.frame_names, frame[0, 0].tolist(), strict=True))
  assert shown == {
    "speed": 10,
    "at 0": 20,
    "at 1": 30,
    "goal 5": 0,
    "goal 6": 1,
    "inner keys 0=0": 0,
    "inner keys 0=1": 1,
    "inner keys 1=0": 0,
    "inner keys 1=1": 0,
    "inner keys 1=2": 1,
    "inner flags 0,0": 0,
    "inner flags 0,1": 1,
  }
  assert vector_text(frame, spec).startswith("speed 10, at 0 20, at 1 30, goal 5 0, goal 6 1, ")


def test_names_follow_the_order_of_flattened_spaces():
  space = spaces.Tuple(
    (spaces.Dict({"z": spaces.Discrete(2), "a": spaces.Box(0, 1, ())}), spaces.Discrete(2))
  )
  x = ({"z": np.int64(1), "a": np.array(0.5, np.float32)}, np.int64(0))
  named = dict(zip(entry_names(space), spaces.flatten(space, x).tolist(), strict=True))
  assert named == {"0 z 0": 0, "0 z 1": 1, "0 a": 0.5, "1 0": 1, "1 1": 0}
  assert entry_names(spaces.Discrete(3)) == ()
  assert entry_names(spaces.Dict({"x": spaces.Box(0, 1, (5000,))})) == ()
  assert entry_names(spaces.Dict({"a\x1b[2J": spaces.Discrete(2)})) == ()


class Lamp(dm_env.Environment):
  action_names = ("off", "on")
  frame_names = ("red", "green", "blue")

  def action_spec(self):
    return specs.DiscreteArray(2)

  def observation_spec(self):
    return specs.Array((3,), np.float32)

  def reset(self):
    return dm_env.restart(np.zeros(3, np.float32))

  def step(self, action):
    return dm_env.termination(0.0, np.zeros(3, np.float32))


def test_names_of_a_dm_env():
  spec = registry.env_spec(f"{HERE}:Lamp")
  assert (spec.action_names, spec.frame_names) == (("off", "on"), ("red", "green", "blue"))
