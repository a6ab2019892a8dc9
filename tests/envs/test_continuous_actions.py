"""Tests of environments with continuous actions: rows of floats, their bounds, and their own form."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from moozi.core.errors import ActionError, UserError
from moozi.core.factors import ActionPart, Factors, Intervals
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.environment import random_action
from moozi.envs.game import ActionRepeat, Game, GameEnvironment
from moozi.envs.suites import gymnasium as gymnasium_suite
from moozi.envs.vector import SyncVectorEnvironment, make_vector
from moozi.envs.wrappers import RandomStarts
from tests.envs.environments import need

ARM = Intervals(
  parts=(
    ActionPart(path=("arm",), shape=(2, 1), dtype="float64", values=((-0.1, 0.1), (0.0, 2.0))),
    ActionPart(path=("hand",), shape=(), dtype="float32", values=((1.0, 3.0),)),
  ),
  names=("arm 0", "arm 1", "hand"),
)
ARM_SPEC = EnvSpec(
  name="test:arm", frame_shape=(1, 1, 3), frame_dtype="float32", num_env_actions=1, factors=ARM
)


class Arm(Game):
  """Shows the last action; the reward is its sum, and an episode has four steps."""

  def __init__(self):
    self.reset()

  def seed(self, seed):
    self._start = np.random.default_rng(seed).random(3, np.float32)

  def reset(self):
    self._time, self._last = 0, getattr(self, "_start", np.zeros(3, np.float32))

  def step(self, action):
    assert (action.dtype, action.shape) == (np.float32, (3,))
    self._time, self._last = self._time + 1, action
    return float(action.sum()), self._time == 4, False

  def frame(self):
    return np.array(self._last, np.float32).reshape(1, 1, 3)


def make_arm():
  return GameEnvironment(Arm(), ARM_SPEC)


def test_spec():
  assert ARM_SPEC.is_continuous
  assert (ARM_SPEC.action_shape, ARM_SPEC.action_dtype) == ((3,), "float32")
  assert (ARM_SPEC.policy_groups, ARM_SPEC.mask_size) == ((1, 1, 1, 1), 3)
  discrete = EnvSpec(name="x", frame_shape=(1, 1, 1), frame_dtype="bool", num_env_actions=2)
  assert (discrete.action_shape, discrete.action_dtype, discrete.is_continuous) == ((), "int32", False)
  assert ARM_SPEC.to_env(1.5) == ARM_SPEC.from_env(1.5) == 1.5
  assert (discrete.to_env(2), discrete.from_env(1)) == (1, 2)
  with pytest.raises(ValueError, match="continuous actions need a game of one player"):
    EnvSpec(
      name="x", frame_shape=(1, 1, 1), frame_dtype="bool", num_env_actions=1, num_players=2, factors=ARM
    )
  with pytest.raises(ValueError, match="must be floats with two bounds"):
    Intervals(parts=(ActionPart(path=(), shape=(), dtype="int8", values=((0, 1),)),), names=("x",))


def test_own_actions():
  row = np.array([0.1, 1.5, 2.0], np.float32)
  own = ARM.own_action(row)
  # 0.1 in float32 is above 0.1 in float64, the bound.
  assert own["arm"].tolist() == [[0.1], [1.5]]
  assert (own["arm"].dtype, own["hand"].dtype, own["hand"].shape) == (np.float64, np.float32, ())
  np.testing.assert_array_equal(ARM.row(own), row)
  np.testing.assert_array_equal(ARM.row(row), row)
  both = ARM.own_actions(np.stack([row, row]))
  assert (both["arm"].shape, both["hand"].shape) == ((2, 2, 1), (2,))
  np.testing.assert_array_equal([ARM.row(x) for x in ARM.split(both)], [row, row])
  assert ARM.name(row) == "arm 0=+0.1 arm 1=+1.5 hand=+2"


@pytest.mark.parametrize(
  ("action", "message"),
  [
    (np.array([0.0, 1.0, 0.5], np.float32), "action=0.5: must be from 1 to 3 in hand"),
    (np.array([np.nan, 1.0, 2.0]), "action=nan: must be from -0.1 to 0.1 in arm 0"),
    ({"arm": [[0.0], [3.0]], "hand": 2.0}, "action=3: must be from 0 to 2 in arm 1"),
    ({"arm": [0.0, 3.0], "hand": 2.0}, r"action\['arm'\]: must be numbers of shape \[2, 1\]"),
    (0, r"action\['arm'\]: must be numbers of shape \[2, 1\]"),
  ],
)
def test_wrong_actions_change_nothing(action, message):
  env = make_arm()
  env.reset()
  with pytest.raises(ValueError, match=message):
    env.step(action)
  assert env._game._time == 0


def test_a_vector_environment_checks_rows():
  env = SyncVectorEnvironment([make_arm(), make_arm()])
  env.reset()
  rows = np.array([[0, 1, 2], [0.05, 2, 3]], np.float32)
  step = env.step(rows)
  np.testing.assert_array_equal(step.frame[:, 0, 0], rows)
  np.testing.assert_array_equal(step.legal_actions_mask, [[False, True, True, True]] * 2)
  for bad in (np.nan, np.inf, 2.5):
    with pytest.raises(ActionError, match=r"actions\[1\]=.*: cannot be played in arm 1; must be from 0 to 2"):
      env.step(np.array([[0, 1, 2], [0.05, bad, 3]], np.float32))
  for wrong in (rows.astype(np.float64), rows[:, :2], np.ones(2, np.int32)):
    with pytest.raises(ValueError, match=r"must be float32\[2, 3\]"):
      env.step(wrong)
  np.testing.assert_array_equal(env.step(rows).frame, step.frame)
  for _ in range(2):
    step = env.step(rows)
  assert step.is_last.all()
  assert env.step(np.zeros((2, 3), np.float32)).is_first.all()  # zeros, the dummy, are discarded


def test_a_vector_environment_restores_its_state():
  def make():
    return SyncVectorEnvironment([make_arm(), make_arm()], lane_seeds=[3, 4])

  env, other = make(), make()
  env.reset()
  random = np.random.default_rng(0)
  for t in range(7):
    rows = np.stack([random_action(ARM_SPEC, np.ones(3, bool), random) for _ in range(2)])
    shown = env.step(rows)
    state = env.get_state()
    assert (state["log"].dtype, state["log"].shape[1]) == (np.float32, 3)
    restored, is_new = other.set_state(state, shown)
    assert not is_new.any(), t
    np.testing.assert_array_equal(restored.frame, shown.frame)
    np.testing.assert_array_equal(other.step(rows).frame, env.step(rows).frame)


def test_random_actions_are_within_the_bounds():
  random = np.random.default_rng(0)
  rows = np.stack([random_action(ARM_SPEC, np.ones(3, bool), random) for _ in range(500)])
  assert rows.dtype == np.float32
  assert (rows >= ARM.low).all()
  assert (rows <= ARM.high).all()
  np.testing.assert_allclose(rows.mean(0), (ARM.low + ARM.high) / 2, atol=0.1)
  env = RandomStarts(GameEnvironment(ActionRepeat(Arm(), ARM_SPEC, 2), ARM_SPEC), 3)
  env.seed(0)
  env.reset()
  assert env.step(ARM.low).reward == pytest.approx(2 * ARM.low.sum(), abs=1e-5)


def test_texts_are_read():
  assert_array_equal(ARM.parse("0.1, 0.5 1"), np.array([0.1, 0.5, 1], np.float32))
  assert_array_equal(ARM.parse("hand=3 arm 1=2 arm 0=-0.1"), np.array([-0.1, 2, 3], np.float32))
  row = np.array([-0.08, 1.23, 2.5], np.float32)
  assert_array_equal(ARM.parse(ARM.name(row)), row)
  with pytest.raises(ValueError, match=r"action=2\.1: must be from 0 to 2 in arm 1"):
    ARM.parse("0 2.1 1")
  with pytest.raises(ValueError, match=r"'0 1': must be a value for each of arm 0, arm 1, hand"):
    ARM.parse("0 1")


def test_views():
  assert make_arm().action_spec().shape == (3,)
  need("gymnasium")
  view = make_arm().as_gymnasium()
  view.reset()
  assert view.action_space["arm"].shape == (2, 1)
  action = view.action_space.sample()
  assert view.step(action)[1] == pytest.approx(action["arm"].sum() + action["hand"], abs=1e-5)


def test_spaces_of_gymnasium():
  need("gymnasium")
  from gymnasium import spaces

  box = spaces.Box(np.array([-1, 0]), np.array([1, 5]), dtype=np.float64)
  found = gymnasium_suite.gymnasium_factors("x", spaces.Dict(a=box, b=spaces.Box(0, 1, ())), 0)
  assert isinstance(found, Intervals)
  assert found.values == ((-1.0, 1.0), (0.0, 5.0), (0.0, 1.0))
  wide = gymnasium_suite.gymnasium_factors("x", spaces.Box(-1, 1, (56,)), 0)
  assert len(wide.names) == 56  # more than can be numbered
  for space in (spaces.MultiDiscrete([2, 3]), spaces.Dict(a=box, b=spaces.Discrete(2))):
    with pytest.raises(UserError, match="action_bins=0 needs an action space of floats alone"):
      gymnasium_suite.gymnasium_factors("x", space, 0)
  assert gymnasium_suite.gymnasium_factors("x", spaces.Discrete(2), 0) is None
  assert isinstance(gymnasium_suite.gymnasium_factors("x", box, 3), Factors)


@pytest.mark.parametrize("name", ["tiny:point", "gymnax:Pendulum-v1", "gymnasium:Pendulum-v1"])
def test_libraries(name):
  if (library := name.partition(":")[0]) != "tiny":
    need(library)
  with pytest.raises(UserError, match=r"action_bins.*must be 0, for continuous actions, or at least 2"):
    registry.env_spec(name, action_bins=1)
  env = make_vector(name, {"action_bins": 0}, 2, seed=0)
  intervals = env.spec.intervals
  assert intervals is not None
  frames = []
  for row in (intervals.low, intervals.high):
    env.reset()
    frames.append(env.step(np.stack([row, row])).frame)
  assert not np.array_equal(*frames)
  one = registry.make(name, 0, action_bins=0)
  one.reset()
  with pytest.raises(ValueError, match="must be from"):
    one.step(2 * intervals.high)
  assert not one.step(intervals.own_action(intervals.high)).last()


def test_gymnax_pendulum_equals_gymnasiums():
  """One step of both, from the state that gymnax's frame shows."""
  need("gymnax")
  need("gymnasium")
  import gymnasium

  ours, theirs = registry.make("gymnax:Pendulum-v1", 0, action_bins=0), gymnasium.make("Pendulum-v1")
  cos, sin, speed = ours.reset().observation.frame[0, 0].tolist()
  theirs.reset(seed=0)
  theirs.unwrapped.state = np.array([np.arctan2(sin, cos), speed])
  action = np.array([0.123456], np.float32)
  step, (observation, reward, *_) = ours.step(action), theirs.step(action)
  assert step.reward == pytest.approx(reward, rel=1e-4)
  np.testing.assert_allclose(step.observation.frame[0, 0], observation, rtol=1e-3, atol=1e-4)
