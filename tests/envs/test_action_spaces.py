"""Tests of the action spaces of Gymnasium and dm_env that are read as joint actions, and of those refused."""

import types
from typing import Any, NamedTuple

import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from gymnasium.wrappers import TransformAction

from moozi.core.errors import UserError
from moozi.core.factors import bins
from moozi.envs import action_spaces
from moozi.envs.action_spaces import dm_env_factors, gymnasium_factors, joint_names, own_bins
from moozi.envs.environment import random_action
from moozi.envs.suites import gymnasium as gymnasium_suite
from tests.envs.suites.gymnasium_fakes import Walk

INF, NAN = float("inf"), float("nan")
BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 10], np.float32))
SPACES = {
  "box": BOX,
  "float64 box": spaces.Box(-0.5, 2.5, (2, 2), np.float64),
  "scalar box": spaces.Box(-1, 1, ()),
  "int box": spaces.Box(-2, 3, (2,), np.int8),
  "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
  "multi-discrete with starts": spaces.MultiDiscrete([3, 2], start=[-1, 5]),
  "multi-discrete of two axes": spaces.MultiDiscrete([[3, 2], [2, 2]]),
  "multi-binary": spaces.MultiBinary((2, 2)),
  "dict": spaces.Dict(gear=spaces.Discrete(4, start=-1), pedals=BOX, lights=spaces.MultiBinary(2)),
  "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (1,)))),
  "nested": spaces.Dict(
    arm=spaces.Dict(hand=spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([2, 2]))), elbow=BOX),
    leg=spaces.Tuple((spaces.Dict(knee=spaces.Discrete(3)),)),
  ),
}
NAMES = {
  "box": ("0", "1"),
  "float64 box": ("0,0", "0,1", "1,0", "1,1"),
  "scalar box": ("action",),
  "dict": ("gear", "pedals 0", "pedals 1", "lights 0", "lights 1"),
  "tuple": ("0", "1"),
  "nested": ("arm hand 0", "arm hand 1 0", "arm hand 1 1", "arm elbow 0", "arm elbow 1", "leg 0 knee"),
}


def factors_of(space, num_bins=5):
  found = gymnasium_factors("env.name=x", space, num_bins)
  assert found is not None
  return found


@pytest.mark.parametrize("kind", SPACES)
def test_every_joint_action_is_of_the_space(kind):
  space, random = SPACES[kind], np.random.default_rng(0)
  factors = factors_of(space)
  chosen = range(factors.num_joint_actions)
  if len(chosen) > 500:
    chosen = random.integers(len(chosen), size=300).tolist()
  for action in chosen:
    own = factors.own_action(action)
    assert space.contains(own), own
    assert factors.joint_action(own) == action
    assert factors.name(action).isprintable()
  for _ in range(20):  # an action between the bins has the nearest
    joint = factors.joint_action(space.sample())
    assert 0 <= joint < factors.num_joint_actions


@pytest.mark.parametrize("kind", NAMES)
def test_names(kind):
  assert factors_of(SPACES[kind]).names == NAMES[kind]


def test_values():
  box = factors_of(BOX)
  assert box.values == (bins(-1, 1, 5), bins(0, 10, 5))
  assert box.sizes == (5, 5)
  assert joint_names(box)[:2] == ("0=-1 1=0", "0=-1 1=+2.5")
  assert factors_of(SPACES["int box"]).values == (tuple(range(-2, 4)),) * 2
  assert factors_of(SPACES["multi-discrete with starts"]).values == ((-1, 0, 1), (5, 6))
  # Seven bins have the middle of the interval, here 0.
  assert factors_of(spaces.Box(-1, 1, (1,)), action_spaces.DEFAULT_BINS).values[0][3] == 0.0
  # More than 32 joint actions have no names of their own.
  assert joint_names(factors_of(BOX, 6)) == ()
  assert joint_names(None) == ()


def test_discrete_actions_have_no_dimensions():
  assert gymnasium_factors("x", spaces.Discrete(4, start=2), 7) is None
  assert dm_env_factors("x", specs.DiscreteArray(4), 7) is None
  assert dm_env_factors("x", specs.BoundedArray((), np.int32, 2, 5), 7) is None


@pytest.mark.parametrize("key", ["a\nb", "\x1b[31m", "", " ", "ünï", "x" * 300])
def test_hostile_keys(key):
  factors = factors_of(spaces.Dict({key: spaces.Box(-1, 1, (1,)), "z": spaces.Discrete(2)}))
  own = factors.own_action(7)
  assert set(own) == {key, "z"}
  assert factors.joint_action(own) == 7
  assert all(name.isprintable() and name for name in factors.names)
  assert "\n" not in factors.name(0)


def box(low, high, dtype=np.float32):
  """Returns a Box with bounds that the class itself may refuse."""
  out = spaces.Box(-1, 1, (2,), dtype)
  out.low, out.high = np.array([-1, low], dtype), np.array([1, high], dtype)
  return out


@pytest.mark.parametrize(
  ("space", "message"),
  [
    (spaces.Box(-INF, INF, (2,)), "without finite bounds; bound them by a wrapper.*TransformAction"),
    (spaces.Box(np.float32([0, 0]), np.float32([1, INF])), "without finite bounds"),
    (spaces.Dict(a=spaces.Box(-1, INF, ())), "without finite bounds"),
    (box(NAN, 1), "without finite bounds"),
    (box(0, NAN), "without finite bounds"),
    (spaces.Box(-1e300, 1e300, (1,), np.float64), "without finite bounds in float32"),
    (box(1, 1), "from 1 to 1; low must be below high"),
    (box(2, 1), "from 2 to 1; low must be below high"),
    (box(-5e8, 5e8, np.int64), "an entry has more than 65,536 values"),
    (spaces.Box(-1, 1, (2,), np.float16), "dtype='float16'"),
    (
      spaces.Box(-1, 1, (12,)),
      "13,841,287,201 joint actions of 12 dimensions.*; action_bins is at most 5 here",
    ),
    (spaces.Box(-1, 1, (30,)), r"10\^25 joint actions of 30 dimensions.*; action_bins is at most 2 here"),
    (
      spaces.MultiDiscrete([100] * 5),
      "10,000,000,000 joint actions of 5 dimensions, must be at most 2,147,483,646$",
    ),
    (spaces.Box(-1, 1, (31,)), "of 31 dimensions; must be at most 30"),
    (spaces.Box(0, 255, (1000, 1000), np.uint8), "of 1,000,000 dimensions; must be at most 30"),
    (spaces.MultiBinary(10**6), "of 1,000,000 dimensions; must be at most 30"),
    (spaces.Text(5), "must be Discrete, Box, MultiDiscrete, MultiBinary, or a Dict or Tuple of these"),
    (spaces.Dict(a=spaces.Discrete(2), b=spaces.Sequence(spaces.Discrete(2))), "must be Discrete, Box"),
    (spaces.Dict(), "must have entries"),
    (spaces.Tuple((spaces.Discrete(2), spaces.Tuple(()))), "must have entries"),
    (spaces.Dict({0: spaces.Discrete(2)}), "of a dict named by texts"),
    (spaces.MultiDiscrete([2, 1]), "at least 2 finite numbers"),
  ],
  ids=str,
)
def test_spaces_that_are_refused(space, message):
  with pytest.raises(UserError, match=rf"^env.name=x: its actions .*{message}") as error:
    factors_of(space, 7)
  assert "\n" not in str(error.value)
  assert len(str(error.value)) < 400


@pytest.mark.parametrize(
  ("space", "message"),
  [
    (spaces.Box(-INF, INF, (2,)), "without finite bounds"),
    (box(NAN, 1), "without finite bounds"),
    (spaces.Box(-1e300, 1e300, (1,), np.float64), "without finite bounds in float32"),
    (box(1, 1), "from 1 to 1; low must be below high"),
    (box(2, 1), "from 2 to 1; low must be below high"),
    # In float32, both bounds are 1e8.
    (spaces.Box(1e8, 1e8 + 1, (1,), np.float64), r"from 1e\+08 to 1e\+08; low must be below high"),
    (spaces.Box(-1, 1, (0,)), "must have at least one"),
  ],
  ids=str,
)
def test_spaces_that_are_refused_as_continuous(space, message):
  with pytest.raises(UserError, match=rf"^env.name=x: its actions .*{message}") as error:
    factors_of(space, 0)
  assert "\n" not in str(error.value)


def test_the_wrapper_that_the_error_names_bounds_a_box():
  walk = Walk(spaces.Box(0, 1, (3,)), spaces.Box(-INF, INF, (2,)))
  with pytest.raises(UserError, match="TransformAction"):
    gymnasium_suite.wrap("gymnasium:Walk-v0", walk)
  bounded = TransformAction(walk, lambda action: action, spaces.Box(-2, 2, (2,)))
  env = gymnasium_suite.wrap("gymnasium:Walk-v0", bounded, action_bins=3)
  env.reset()
  env.step(5)
  np.testing.assert_array_equal(walk.actions, [[0, 2]])


class Named(NamedTuple):
  gear: Any


@pytest.mark.parametrize("shape", [(), (2,), (2, 2)])
def test_dm_env_arrays(shape):
  spec = specs.BoundedArray(shape, np.float64, -1.0, 3.0, "force")
  factors, random = dm_env_factors("x", spec, 3), np.random.default_rng(0)
  for action in random.integers(factors.num_joint_actions, size=20).tolist():
    own = spec.validate(factors.own_action(action))
    assert factors.joint_action(own) == action
  integers = specs.BoundedArray((2,), np.int32, [0, -1], [2, 1])
  assert dm_env_factors("x", integers, 3).values == ((0, 1, 2), (-1, 0, 1))


@pytest.mark.parametrize(
  ("spec", "message"),
  [
    (specs.Array((2,), float), "must be a BoundedArray or a DiscreteArray, or a dict or tuple of these"),
    (specs.StringArray(()), "must be a BoundedArray or a DiscreteArray"),
    (specs.BoundedArray((2,), bool, False, True), "must be a BoundedArray or a DiscreteArray"),
    (
      {"a": specs.DiscreteArray(2), "b": specs.Array((2,), float)},
      "must be a BoundedArray or a DiscreteArray",
    ),
    ([specs.DiscreteArray(2)], "must be a BoundedArray or a DiscreteArray"),
    (Named(specs.DiscreteArray(2)), "must be a BoundedArray or a DiscreteArray"),
    ({}, "must have entries"),
    ((specs.DiscreteArray(2), ()), "must have entries"),
    ({0: specs.DiscreteArray(2)}, "of a dict named by texts"),
    ({"a": specs.DiscreteArray(1)}, "low must be below high"),
    (
      {"a": specs.BoundedArray((), float, -INF, 1.0)},
      "without finite bounds; return finite bounds from action_",
    ),
    (
      specs.BoundedArray((2,), float, -INF, 1.0),
      "without finite bounds; return finite bounds from action_spec",
    ),
    (specs.BoundedArray((2,), float, NAN, 1.0), "without finite bounds"),
    (specs.BoundedArray((2,), float, 1.0, 1.0), "low must be below high"),
    (specs.BoundedArray((12,), float, -1.0, 1.0), "action_bins is at most 5"),
    (specs.BoundedArray((40,), float, -1.0, 1.0), "of 40 dimensions; must be at most 30"),
  ],
  ids=str,
)
def test_dm_env_specs_that_are_refused(spec, message):
  with pytest.raises(UserError, match=rf"^env.name=x: its actions .*{message}") as error:
    dm_env_factors("env.name=x", spec, 7)
  assert "\n" not in str(error.value)


def test_bins_of_a_users_environment():
  assert own_bins("x", object()) == 7
  assert own_bins("x", types.SimpleNamespace(action_bins=11)) == 11
  assert own_bins("x", types.SimpleNamespace(unwrapped=types.SimpleNamespace(action_bins=3))) == 3
  for bad in (1, 1002, 2.5, "7", True):
    with pytest.raises(UserError, match="action_bins"):
      own_bins("x", types.SimpleNamespace(action_bins=bad))


@pytest.mark.parametrize("kind", SPACES)
def test_an_environment_receives_its_own_actions(kind):
  walk = Walk(spaces.Box(0, 1, (3,)), SPACES[kind])  # asserts that its space contains the action
  env, random = gymnasium_suite.wrap("gymnasium:Walk-v0", walk, action_bins=3), np.random.default_rng(0)
  step = env.reset()
  for _ in range(8):
    step = env.step(random_action(env.env_spec, step.observation.legal_actions_mask, random))
  assert len(walk.actions) == 8
  assert env.env_spec.num_env_actions == factors_of(SPACES[kind], 3).num_joint_actions
