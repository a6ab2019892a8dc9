"""Tests of the adapter for dm_env environments."""

import dm_env
import numpy as np
import pytest
from dm_env import StepType, specs

from moozi.core.errors import EnvError, UserError
from moozi.envs.environment import Observation
from moozi.envs.guard import EnvGuard
from moozi.envs.suites import dm_env as dm_env_suite
from moozi.envs.vector import SyncVectorEnvironment
from moozi.ops.frame_parts import split_frames
from tests.envs.contract import (
  EnvironmentContract,
  IllegalActionsContract,
  TwoPlayersContract,
  assert_same,
  play,
)


class Count(dm_env.Environment):
  """Counts to nine; the observation is the count and a random number."""

  def __init__(self, observation=None, action=None, last_discount=0.0, discount=1.0, reward=0.5) -> None:
    self._observation = observation or specs.BoundedArray((2,), np.float64, [0, -np.inf], [9, np.inf])
    self._action = action or specs.DiscreteArray(3)
    self._last_discount, self._discount, self._reward = last_discount, discount, reward
    self.actions, self.closed = [], False
    self.seed(0)

  def seed(self, seed):
    self._random = np.random.RandomState(seed)

  def observation_spec(self):
    return self._observation

  def action_spec(self):
    return self._action

  def reset(self):
    self._count = 0
    return dm_env.restart(self._observe())

  def step(self, action):
    self.actions.append(action)
    self._count += 1
    if self._count == 9:
      return dm_env.TimeStep(StepType.LAST, self._reward, self._last_discount, self._observe())
    return dm_env.TimeStep(StepType.MID, self._reward, self._discount, self._observe())

  def _observe(self):
    return np.array([self._count, self._random.rand()])

  def close(self):
    self.closed = True


def wrap(env, seed=0):
  wrapped = dm_env_suite.wrap("own:make", env)
  wrapped.seed(seed)
  return wrapped


class TestArray(EnvironmentContract):
  def make(self):
    return wrap(Count())


class Sticks(dm_env.Environment):
  """Two players take 1 or 2 of seven sticks in turn; the observation is a NamedTuple or a dict."""

  def __init__(self, as_key=False, players=(0, 1), last_player=None) -> None:
    self._as_key, self._players, self._last_player = as_key, players, last_player

  def observation_spec(self):
    out = Observation(
      specs.Array((7,), bool, "frame"), specs.Array((2,), bool, "legal"), specs.DiscreteArray(2)
    )
    return out._asdict() if self._as_key else out

  def action_spec(self):
    return specs.BoundedArray((), np.int32, 1, 2)

  def reset(self):
    self._left, self._player = 7, 0
    return dm_env.restart(self._observe())

  def step(self, action):
    self._left -= action
    self._player = 1 - self._player
    return (
      dm_env.termination(1.0, self._observe()) if self._left == 0 else dm_env.transition(0.0, self._observe())
    )

  def _observe(self):
    player = self._players[self._player]
    if self._left == 0 and self._last_player is not None:
      player = self._last_player
    out = Observation(np.arange(7) < self._left, np.arange(1, 3) <= self._left, player)
    return out._asdict() if self._as_key else out


class TestRecord(TwoPlayersContract, IllegalActionsContract):
  def make(self):
    return wrap(Sticks())


@pytest.mark.slow
class TestRecordByKeys(TwoPlayersContract, IllegalActionsContract):
  def make(self):
    return wrap(Sticks(as_key=True))


def test_frames_and_actions():
  env = Count(action=specs.BoundedArray((), np.int64, -1, 1))
  wrapped = wrap(env)
  steps = [wrapped.reset(), *(wrapped.step(a) for a in (2, 0, 1))]
  assert env.actions == [1, -1, 0]
  assert wrapped.env_spec.action_names == ("-1", "0", "1")
  np.testing.assert_allclose([s.observation.frame[0, 0, 0] for s in steps], np.arange(4) / 9, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("start", [0, 3])
def test_actions_have_the_type_of_their_spec(dtype, start):
  class Strict(Count):
    def step(self, action):
      self.action_spec().validate(action)
      return super().step(action)

  env = Strict(
    action=specs.BoundedArray((), dtype, start, start + 2) if start else specs.DiscreteArray(3, dtype)
  )
  play(wrap(env), 12)
  assert {type(action) for action in env.actions} == {dtype}


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_ends(discount):
  step = play(wrap(Count(last_discount=discount)), 10)[-1]
  assert (step.step_type, step.reward, step.discount) == (StepType.LAST, 0.5, discount)


@pytest.mark.parametrize("name", ["legal_actions_mask", "action_mask"])
def test_names_of_masks(name):
  array = specs.Array((2,), np.float64)
  env = Count({"frame": array, name: specs.Array((3,), bool)})
  env._observe = lambda: {"frame": np.zeros(2), name: np.array([1, 0, 1])}
  assert wrap(env).reset().observation.legal_actions_mask.tolist() == [True, False, True]
  env._observe = lambda: {"frame": np.zeros(2), name: np.array([1, 0, -2])}
  with pytest.raises(UserError, match=rf"env.name=own:make: {name}=.*: must be 3 values 0 or 1"):
    wrap(env).reset()


def test_players_and_masks():
  env = wrap(Sticks())
  assert (env.env_spec.num_players, env.env_spec.frame_dtype) == (2, "bool")
  steps = [env.reset(), *(env.step(1) for _ in range(3))]
  assert [s.observation.to_play for s in steps] == [0, 1, 0, 1]
  assert steps[-1].observation.legal_actions_mask.tolist() == [True, False]


@pytest.mark.parametrize(
  ("env", "message"),
  [
    (Count(discount=0.9), "a MID step of discount 0.9"),
    (Count(last_discount=0.9), "a LAST step of discount 0.9"),
    (Count(reward=float("inf")), "reward=inf is not finite"),
    (Count(reward=None), "reward=None: must be a number"),
    (Count(reward=np.ones(2)), "reward=.*: must be a number"),
    (Count(observation=specs.Array((3,), float)), r"shape \[2\]; its spec says \[3\]"),
    (Sticks(players=(1, 2)), "to_play=2; its spec says 0 or 1"),
    (Sticks(players=(0, -1)), "to_play=-1; its spec says 0 or 1"),
    (Sticks(players=(0, None)), "to_play=None; its spec says 0 or 1"),
    (Sticks(players=(0, 0)), "player 0 moves twice in a row"),
  ],
)
def test_steps_against_the_spec(env, message):
  with pytest.raises(UserError, match=rf"^env.name=own:make: .*{message}"):
    play(wrap(env), 12)


class NotFinite(Count):
  """Returns NaN in step 5, as its reward or in its observation."""

  def __init__(self, what):
    super().__init__()
    self._what = what

  def step(self, action):
    step = super().step(action)
    if self._count != 5:
      return step
    return step._replace(**{self._what: step.observation * np.nan if self._what == "observation" else np.nan})


@pytest.mark.parametrize(
  ("what", "message"), [("observation", "an observation that is not"), ("reward", "reward=nan is not finite")]
)
@pytest.mark.parametrize("is_always", [False, True])
def test_value_that_is_not_finite_is_a_fault(what, message, is_always):
  guard = EnvGuard("own:make", [1], lambda seed: wrap(NotFinite(what) if is_always else Count()), 3, None)
  vector = SyncVectorEnvironment([wrap(NotFinite(what))], guard=guard)
  vector.reset()
  steps = (vector.step(np.ones(1, np.int32)) for _ in range(20))
  if is_always:
    with pytest.raises(EnvError, match=rf"^env\.name=own:make: {message}.*3 faults in a row"):
      list(steps)
    return
  assert [t for t, step in enumerate(steps) if step.is_first[0]] == [4, 14]
  assert vector.num_faults == 1


def test_to_play_of_a_terminal_frame_is_ignored():
  steps = play(wrap(Sticks(last_player=-1)), 40)
  assert_same(steps, play(wrap(Sticks()), 40))
  assert any(step.last() for step in steps)


@pytest.mark.parametrize(
  ("env", "message"),
  [
    (Count(action=specs.BoundedArray((), float, -1, np.inf)), "without finite bounds"),
    (Count(action=specs.Array((), int)), "must be a BoundedArray or a DiscreteArray"),
    (
      Count(action=specs.DiscreteArray(2**40, np.int64)),
      r"it has 1099511627776 actions; must have 1 to 65,536",
    ),
    (Count(action=specs.BoundedArray((), np.int64, 0, 2**16)), "it has 65537 actions"),
    (Count(observation={"inner": {"position": specs.Array((2,), float)}}), "or a dict of arrays"),
    (Count(observation={"action_mask": specs.Array((3,), bool)}), "or a dict of arrays"),
    (Count(observation=specs.StringArray(())), "observations of type"),
    (
      Count(observation={"frame": specs.Array((2,), float), "to_play": specs.DiscreteArray(3)}),
      "to_play is DiscreteArray",
    ),
  ],
)
def test_unsupported_specs(env, message):
  with pytest.raises(UserError, match=rf"env.name=own:make: .*{message}") as error:
    wrap(env)
  assert "\n" not in str(error.value)


def test_joint_actions():
  env = Count(action=specs.BoundedArray((2,), float, [-1, 0], [1, 6]))
  env.action_bins = 3
  wrapped = wrap(env)
  spec = wrapped.env_spec
  assert spec.factors.values == ((-1.0, 0.0, 1.0), (0.0, 3.0, 6.0))
  assert spec.action_names[:2] == ("0=-1 1=0", "0=-1 1=+3")
  wrapped.reset()
  for action in (0, 5, 8):
    wrapped.step(action)
  np.testing.assert_array_equal(env.actions, [[-1, 0], [0, 6], [1, 6]])


CAR = {
  "gear": specs.DiscreteArray(3),
  "pedals": specs.BoundedArray((2,), np.float32, 0, 1),
  "more": (specs.BoundedArray((), np.int64, -1, 1), {"horn": specs.DiscreteArray(2, np.int8)}),
}


def test_dicts_and_tuples_of_actions():
  env = Count(action=CAR)
  env.action_bins = 3
  wrapped, random = wrap(env), np.random.default_rng(0)
  spec = wrapped.env_spec
  assert spec.factors.names == ("gear", "pedals 0", "pedals 1", "more 0", "more 1 horn")
  assert spec.factors.values == ((0, 1, 2), (0.0, 0.5, 1.0), (0.0, 0.5, 1.0), (-1, 0, 1), (0, 1))
  wrapped.reset()
  for action in random.integers(spec.num_env_actions, size=8).tolist():
    wrapped.step(action)
    own = env.actions[-1]
    assert (list(own), type(own["more"]), list(own["more"][1])) == (list(CAR), tuple, ["horn"])
    CAR["gear"].validate(own["gear"])
    CAR["pedals"].validate(own["pedals"])
    CAR["more"][0].validate(own["more"][0])
    CAR["more"][1]["horn"].validate(own["more"][1]["horn"])
    assert spec.factors.joint_action(own) == action
  # The environment's own form plays the same action.
  wrapped.reset()
  wrapped.step(own)
  assert spec.factors.joint_action(env.actions[-1]) == action


def test_continuous_actions_in_a_dict():
  env = Count(
    action={"arm": specs.BoundedArray((2,), float, -1, 3), "leg": specs.BoundedArray((), float, 0, 1)}
  )
  env.action_bins = 0
  wrapped = wrap(env)
  wrapped.reset()
  wrapped.step(np.array([2.5, -1, 0.25], np.float32))
  (own,) = env.actions
  assert own["arm"].tolist() == [2.5, -1.0]
  assert (own["leg"].shape, float(own["leg"])) == ((), 0.25)


class TestJointActions(EnvironmentContract):
  def make(self):
    return wrap(Count(action=specs.BoundedArray((2,), float, -1, 1)))


def test_close():
  env = Count()
  wrap(env).close()
  assert env.closed


class Camera(Count):
  """Shows a picture of bytes with channels first, a matrix, a flag and a speed, in a dict with a mask."""

  def observation_spec(self):
    return {
      "speed": specs.BoundedArray((), np.float64, -4, 4),
      "camera": specs.BoundedArray((3, 32, 33), np.uint8, 0, 255),
      "action_mask": specs.Array((3,), bool),
      "matrix": specs.Array((2, 2), np.float32),
      "is_open": specs.Array((1,), bool),
    }

  def _observe(self):
    random = np.random.RandomState(self._count)
    return {
      "is_open": np.array([True]),
      "matrix": random.rand(2, 2).astype(np.float32),
      "camera": random.randint(0, 256, (3, 32, 33)).astype(np.uint8),
      "action_mask": np.array([True, False, True]),
      "speed": np.float64(-2),
    }


def test_a_dict_of_arrays_is_one_vector():
  env = wrap(Camera())
  spec, observation = env.env_spec, env.reset().observation
  shown = Camera()
  given = shown.reset().observation
  assert spec.frame_shape == (1, 1, 1 + 3 * 32 * 33 + 4 + 1)
  assert observation.legal_actions_mask.tolist() == [True, False, True]
  assert [(part.name, part.shape, part.is_bytes) for part in spec.frame_parts] == [
    ("speed", (1,), False),
    ("camera", (32, 33, 3), True),
    ("matrix", (2, 2), False),
    ("is_open", (1,), False),
  ]
  assert (spec.frame_names[0], spec.frame_names[-2]) == ("speed", "matrix 1,1")
  speed, camera, matrix, is_open = split_frames(observation.frame[0, 0], spec.frame_parts)
  np.testing.assert_array_equal(camera, np.moveaxis(given["camera"], 0, -1) * np.float32(1 / 255))
  np.testing.assert_array_equal(matrix, given["matrix"])
  assert (speed.tolist(), is_open.tolist()) == ([-0.5], [1])
  frame, mask, _ = env.own_observations.read(given)
  np.testing.assert_array_equal(frame, observation.frame)
  assert mask.tolist() == [True, False, True]
  with pytest.raises(UserError, match=r"observation\['camera'\]: float64\[2\]; must be uint8"):
    env.own_observations.read(given | {"camera": np.zeros(2)})
  with pytest.raises(UserError, match="an observation without 'speed'"):
    env.own_observations.read({"camera": given["camera"]})
