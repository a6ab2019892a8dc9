"""Tests of `GameEnvironment`."""

import numpy as np
import pytest
from dm_env import StepType

from moozi.core.errors import EnvValueError, UserError
from moozi.envs.environment import random_action
from moozi.envs.game import GameEnvironment
from moozi.envs.guard import EnvGuard
from moozi.envs.vector import SyncVectorEnvironment
from tests.envs.contract import IllegalActionsContract, LivesContract, TwoPlayersContract
from tests.envs.environments import NIM_SPEC, Nim, make_lives, make_nim


class TestTwoPlayers(TwoPlayersContract, IllegalActionsContract):
  def make(self):
    return make_nim()


class TestTwoPlayersCapped(TwoPlayersContract, IllegalActionsContract):
  def make(self):
    return make_nim(max_episode_steps=3)


class TestLives(LivesContract):
  def make(self):
    return make_lives()


class TestLivesCapped(LivesContract):
  def make(self):
    return make_lives(max_episode_steps=4)


def test_game_continues_after_a_lost_life():
  env, last_count = make_lives(), -1
  for lives in (3, 2, 1):
    step = env.step(0)
    assert step.first()
    assert step.observation.is_continued == (lives < 3)
    count, left = step.observation.frame[0, 0]
    assert left == lives
    assert count == last_count + 1
    while not step.last():
      step = env.step(1)
    assert (step.discount, step.reward) == (0.0, 1.0)
    last_count = step.observation.frame[0, 0, 0]
  step = env.step(0)
  assert not step.observation.is_continued
  assert step.observation.frame.tolist() == [[[0, 3]]]


def test_truncation_does_not_continue_a_game():
  env = make_lives(max_episode_steps=1)
  env.reset()
  assert env.step(0).discount == 1.0
  assert not env.step(0).observation.is_continued


def test_render():
  env = make_lives()
  env.reset()
  env.step(0)
  np.testing.assert_array_equal(env.render(), np.full((4, 6, 3), 1, np.uint8))
  assert make_nim().render() is None


def test_without_illegal_actions_the_mask_is_one_read_only_array():
  masks = [env.reset().observation.legal_actions_mask for env in (make_lives(), make_lives())]
  assert masks[0] is masks[1]
  with pytest.raises(ValueError, match="read-only"):
    masks[0][0] = False


def test_random_actions_are_drawn_as_by_choice():
  random, expected = np.random.default_rng(3), np.random.default_rng(3)
  spec = make_nim().env_spec
  for mask in np.random.default_rng(0).random((50, spec.mask_size)) < 0.6:
    mask[1] = True
    assert random_action(spec, mask, random) == expected.choice(np.flatnonzero(mask))


def test_terminal_step():
  env = make_nim()
  env.reset()
  env.step(2)
  env.step(2)
  step = env.step(0)
  assert (step.step_type, step.reward, step.discount) == (StepType.LAST, 1.0, 0.0)


def test_cap_truncates_with_a_live_frame():
  env = make_nim(max_episode_steps=2)
  env.reset()
  assert env.step(0).mid()
  step = env.step(1)
  assert (step.step_type, step.reward, step.discount) == (StepType.LAST, 0.0, 1.0)
  np.testing.assert_array_equal(step.observation.frame, [[[4, 0]]])
  assert step.observation.legal_actions_mask.all()
  assert env.step(0).first()


def test_cap_counts_from_each_reset():
  env = make_nim(max_episode_steps=2)
  env.reset()
  env.step(0)
  env.reset()
  assert env.step(0).mid()
  assert env.step(0).last()


def test_terminal_step_at_the_cap():
  env = make_nim(max_episode_steps=3)
  env.reset()
  env.step(2)
  env.step(2)
  assert env.step(0).discount == 0.0


def test_illegal_action_message_lists_legal_ones():
  env = make_nim()
  env.reset()
  env.step(2)
  env.step(1)
  with pytest.raises(ValueError, match=r"action=2: illegal .*; must be one of \[0, 1\]"):
    env.step(2)


def test_cap_below_1():
  with pytest.raises(ValueError, match="max_episode_steps=0"):
    GameEnvironment(Nim(), NIM_SPEC, 0)


def test_player_who_moves_twice():
  class Greedy(Nim):
    def step(self, action):
      self._player = 1 - self._player  # Nim's step switches again, so the same player moves twice
      return super().step(action)

  env = GameEnvironment(Greedy(), NIM_SPEC)
  env.reset()
  with pytest.raises(UserError, match="moves twice"):
    env.step(0)


def test_more_actions_than_max_moves():
  game = Nim()
  game.max_moves = 2
  env = GameEnvironment(game, NIM_SPEC)
  env.reset()
  env.step(0)
  env.step(0)
  with pytest.raises(UserError, match=r"^env\.name=test:nim: an episode has more actions than max_moves=2"):
    env.step(0)


@pytest.mark.parametrize("max_moves", [None, 9])
def test_cut_by_the_game_with_max_moves(max_moves):
  """A search with the game's rules continues after a cut, so the cut must not be part of the rules."""

  class Cut(Nim):
    def step(self, action):
      return (*super().step(action)[:2], True)

  game = Cut()
  game.max_moves = max_moves
  env = GameEnvironment(game, NIM_SPEC)
  env.reset()
  if max_moves is None:
    assert (env.step(0).last(), env._needs_reset) == (True, True)
  else:
    with pytest.raises(
      UserError, match=r"test:nim: a game with max_moves cut its episode.*max_episode_steps"
    ):
      env.step(0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("what", ["step", "frame"])
def test_value_that_is_not_finite_is_a_fault(what, value):
  """A bare game is checked as environments of Gymnasium and dm_env are, so a guard replaces it."""
  bad, message = (
    ((value, False, False), f"reward={value}") if what == "step" else (np.full((1, 1, 2), value), "an obs")
  )
  game = Nim()
  setattr(game, what, lambda *args: bad)
  env = GameEnvironment(game, NIM_SPEC)
  guard = EnvGuard("own", [1], lambda seed: make_nim(), 3, None)
  vector = SyncVectorEnvironment([env], guard=guard)
  vector.reset()
  vector.step(np.ones(1, np.int32))
  assert vector.num_faults == 1
  with pytest.raises(EnvValueError, match=rf"^env\.name=test:nim: {message}.* not finite"):
    env.step(0) if what == "step" else env.reset()
