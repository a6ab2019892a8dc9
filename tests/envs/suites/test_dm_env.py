"""The bridge to any dm_env environment: specs, ends, seeds, players, and what cannot be played."""

import dm_env
import numpy as np
import pytest
from dm_env import StepType, specs

from moozi.core.errors import UserError
from moozi.envs.environment import Observation
from moozi.envs.suites import dm_env as dm_env_suite
from tests.envs.contract import EnvironmentContract, assert_same, play


class Count(dm_env.Environment):
  """Counts to nine; the frame has the count and a random number."""

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
  world = dm_env_suite.wrap("own:make", env)
  world.seed(seed)
  return world


class TestArray(EnvironmentContract):
  def make(self):
    return wrap(Count())


class Sticks(dm_env.Environment):
  """Two players take 1 or 2 of seven sticks in turn; observations are a record."""

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


class TestRecord(EnvironmentContract):
  def make(self):
    return wrap(Sticks())


class TestRecordByKeys(EnvironmentContract):
  def make(self):
    return wrap(Sticks(as_key=True))


def test_frames_and_actions_are_translated():
  env = Count(action=specs.BoundedArray((), np.int64, -1, 1))
  world = wrap(env)
  steps = [world.reset(), *(world.step(a) for a in (2, 0, 1))]
  assert env.actions == [1, -1, 0]
  assert world.env_spec.action_names == ("-1", "0", "1")
  np.testing.assert_allclose([s.observation.frame[0, 0, 0] for s in steps], np.arange(4) / 9, rtol=1e-6)


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_ends(discount):
  step = play(wrap(Count(last_discount=discount)), 10)[-1]
  assert (step.step_type, step.reward, step.discount) == (StepType.LAST, 0.5, discount)


def test_players_and_their_masks():
  world = wrap(Sticks())
  assert (world.env_spec.num_players, world.env_spec.frame_dtype) == (2, "bool")
  steps = [world.reset(), *(world.step(1) for _ in range(3))]
  assert [s.observation.to_play for s in steps] == [0, 1, 0, 1]
  assert steps[-1].observation.legal_actions_mask.tolist() == [True, False]


@pytest.mark.parametrize(
  ("env", "said"),
  [
    (Count(discount=0.9), "a MID step of discount 0.9"),
    (Count(last_discount=0.9), "a LAST step of discount 0.9"),
    (Count(reward=float("inf")), "reward=inf is not finite"),
    (Count(reward=None), "reward=None: must be a number"),
    (Count(reward=np.ones(2)), "reward=.*: must be a number"),
    (Count(observation=specs.Array((3,), float)), r"shape \[2\]; it promised \[3\]"),
    (Sticks(players=(1, 2)), "to_play=2; it promised 0 or 1"),
    (Sticks(players=(0, -1)), "to_play=-1; it promised 0 or 1"),
    (Sticks(players=(0, None)), "to_play=None; it promised 0 or 1"),
    (Sticks(players=(0, 0)), "player 0 moves twice in a row"),
  ],
)
def test_steps_that_break_the_promise_are_refused(env, said):
  with pytest.raises(UserError, match=rf"^env.name=own:make: .*{said}"):
    play(wrap(env), 12)


def test_at_an_end_it_does_not_matter_who_is_said_to_move():
  """Environments say what they like there: it is whose turn it would have been."""
  world, plain = wrap(Sticks(last_player=-1)), wrap(Sticks())
  steps = play(world, 40)
  assert_same(steps, play(plain, 40))
  assert any(step.last() for step in steps)


@pytest.mark.parametrize(
  ("env", "said"),
  [
    (Count(action=specs.BoundedArray((), float, -1, 1)), "continuous actions are not supported"),
    (Count(action=specs.BoundedArray((2,), int, 0, 1)), "only one whole number is supported"),
    (Count(action=specs.Array((), int)), "only one whole number is supported"),
    (
      Count(action=specs.DiscreteArray(2**40, np.int64)),
      r"it has 1099511627776 actions; supported are 1 to 65,536",
    ),
    (Count(action=specs.BoundedArray((), np.int64, 0, 2**16)), "it has 65537 actions"),
    (Count(observation={"position": specs.Array((2,), float)}), "supported are one array, or a record"),
    (Count(observation=specs.StringArray(())), "observations of type"),
    (
      Count(observation={"frame": specs.Array((2,), float), "to_play": specs.DiscreteArray(3)}),
      "to_play is DiscreteArray",
    ),
  ],
)
def test_specs_that_cannot_be_played(env, said):
  with pytest.raises(UserError, match=rf"env.name=own:make: .*{said}") as error:
    wrap(env)
  assert "\n" not in str(error.value)


def test_closes_the_env_within():
  env = Count()
  wrap(env).close()
  assert env.closed
