"""The bridge from a game's rules to an environment: ends, the step cap, checks, two players."""

import numpy as np
import pytest
from dm_env import StepType

from moozi.core.errors import UserError
from moozi.envs.environment import GameEnvironment
from tests.envs.contract import EnvironmentContract
from tests.envs.environments import NIM_SPEC, Nim, make_lives, make_nim


class TestTwoPlayerEnv(EnvironmentContract):
  def make(self):
    return make_nim()


class TestCappedTwoPlayerEnv(EnvironmentContract):
  def make(self):
    return make_nim(max_episode_steps=3)


class TestEnvOfLives(EnvironmentContract):
  goes_on_after_a_life_lost = True

  def make(self):
    return make_lives()


class TestCappedEnvOfLives(EnvironmentContract):
  goes_on_after_a_life_lost = True

  def make(self):
    return make_lives(max_episode_steps=4)


def test_after_a_life_lost_the_game_goes_on_without_an_action():
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


def test_a_cut_before_a_life_is_lost_begins_a_new_game():
  env = make_lives(max_episode_steps=1)
  env.reset()
  assert env.step(0).discount == 1.0
  assert not env.step(0).observation.is_continued


def test_an_env_shows_its_own_picture_where_it_has_one():
  env = make_lives()
  env.reset()
  env.step(0)
  np.testing.assert_array_equal(env.render(), np.full((4, 6, 3), 1, np.uint8))
  assert make_nim().render() is None


def test_an_end_of_the_task_has_discount_0_and_the_winners_reward():
  env = make_nim()
  env.reset()
  env.step(2)
  env.step(2)
  step = env.step(0)
  assert (step.step_type, step.reward, step.discount) == (StepType.LAST, 1.0, 0.0)


def test_the_step_cap_truncates_with_the_true_frame():
  env = make_nim(max_episode_steps=2)
  env.reset()
  assert env.step(0).mid()
  step = env.step(1)
  assert (step.step_type, step.reward, step.discount) == (StepType.LAST, 0.0, 1.0)
  np.testing.assert_array_equal(step.observation.frame, [[[4, 0]]])
  assert step.observation.legal_actions_mask.all()
  assert env.step(0).first()


def test_the_step_cap_counts_from_each_reset():
  env = make_nim(max_episode_steps=2)
  env.reset()
  env.step(0)
  env.reset()
  assert env.step(0).mid()
  assert env.step(0).last()


def test_an_end_on_the_capped_step_stays_an_end():
  env = make_nim(max_episode_steps=3)
  env.reset()
  env.step(2)
  env.step(2)
  assert env.step(0).discount == 0.0


def test_illegal_action_names_the_legal_ones():
  env = make_nim()
  env.reset()
  env.step(2)
  env.step(1)
  with pytest.raises(ValueError, match=r"action=2: illegal here; legal are \[0, 1\]"):
    env.step(2)


def test_a_cap_below_1_is_refused():
  with pytest.raises(ValueError, match="max_episode_steps=0"):
    GameEnvironment(Nim(), NIM_SPEC, 0)


def test_a_player_who_moves_twice_is_refused():
  class Greedy(Nim):
    def step(self, action):
      self._player = 1 - self._player  # and back in the rules: the same player again
      return super().step(action)

  env = GameEnvironment(Greedy(), NIM_SPEC)
  env.reset()
  with pytest.raises(UserError, match="moves twice"):
    env.step(0)
