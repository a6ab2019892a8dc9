"""Tests of the wrappers `StepCap` and `RandomStarts`."""

import collections

import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.wrappers import RandomStarts, StepCap
from tests.envs.contract import (
  EnvironmentContract,
  IllegalActionsContract,
  LivesContract,
  TwoPlayersContract,
  assert_same,
  play,
)
from tests.envs.environments import make_lives, make_nim


class TestStepCap(EnvironmentContract):
  def make(self):
    return StepCap(registry.make("minatar:breakout", seed=0), 7)


class TestStepCapWithLives(LivesContract):
  def make(self):
    return StepCap(make_lives(), 10)


class TestRandomStarts(EnvironmentContract):
  def make(self):
    return RandomStarts(registry.make("minatar:breakout", seed=0), 8)


class TestRandomStartsOfTwoPlayers(TwoPlayersContract, IllegalActionsContract):
  def make(self):
    return RandomStarts(make_nim(), 8)


class TestRandomStartsWithLives(LivesContract):
  def make(self):
    return RandomStarts(make_lives(), 8)


# --- the step cap ---------------------------------------------------------------------------------------


def test_cap_counts_all_lives_of_a_game():
  num_cut = 0
  for step in play(StepCap(make_lives(), 10), 600):
    count = step.observation.frame[0, 0, 0]
    is_cut = step.last() and step.discount == 1.0
    # The reset that continues a game after a lost life counts as a step, but is never truncated.
    assert is_cut == (count >= 10 and not step.first() and step.discount != 0.0)
    num_cut += is_cut
  assert num_cut > 5


def steps_until_last(env):
  step, count = env.reset(), 0
  while not step.last():
    step, count = env.step(1), count + 1
  return step, count


def test_cap_truncates_every_episode():
  env = StepCap(registry.make("tiny:catch", seed=0), 4)
  for _ in range(2):
    step, count = steps_until_last(env)
    assert (count, step.discount) == (4, 1.0)


def test_terminal_step_at_the_cap():
  step, count = steps_until_last(StepCap(registry.make("tiny:catch", seed=0), 9))
  assert (count, step.discount) == (9, 0.0)
  assert abs(step.reward) == 1.0


def test_bad_bounds():
  with pytest.raises(ValueError, match="max_steps=0"):
    StepCap(make_nim(), 0)
  with pytest.raises(ValueError, match="max_random_starts=-1"):
    RandomStarts(make_nim(), -1)


# --- random starts --------------------------------------------------------------------------------------


def test_starts_lose_no_life_and_skip_continued_games():
  counts, before = [], None
  for step in play(RandomStarts(make_lives(), 8), 2000):
    count, lives = step.observation.frame[0, 0]
    if step.observation.is_continued:
      assert count == before + 1
    elif step.first():
      # If the random actions lose a life, a new game starts with a new draw.
      assert lives == 3
      assert step.observation.is_continued is False
      counts.append(count)
    before = count
  assert max(counts) == 6
  assert min(counts) == 0


def num_started(step):
  """Returns the number of random actions before a first frame of Catch, which is the ball's row."""
  return int(np.argwhere(step.observation.frame[..., 0])[0][0])


def test_k_is_uniform():
  env = RandomStarts(registry.make("tiny:catch", seed=0), 8)
  counts = collections.Counter()
  for seed in range(1800):
    env.seed(seed)
    counts[num_started(env.reset())] += 1
  assert sorted(counts) == list(range(9))
  # In 1800 draws, 200 of each are expected, with a standard deviation of 13.
  assert all(150 < count < 250 for count in counts.values())


def test_all_actions_are_drawn():
  env = RandomStarts(registry.make("tiny:catch", seed=0), 1)
  columns = collections.Counter()
  for _ in range(400):
    step = env.reset()
    if num_started(step) == 1:
      columns[int(np.argwhere(step.observation.frame[..., 1])[0][1])] += 1
  assert sorted(columns) == [1, 2, 3]
  assert min(columns.values()) > 40


def test_maximum_0_changes_nothing():
  bare = registry.make("minatar:breakout", seed=4)
  env = RandomStarts(registry.make("minatar:breakout", seed=9), 0)
  env.seed(4)
  assert_same(play(env, 60), play(bare, 60))


def test_start_that_ends_the_episode_is_drawn_again():
  # A corridor of three cells ends at the first step, so only a start with no random action is possible.
  env = RandomStarts(registry.make("tiny:corridor", seed=0, length=3), 8)
  for _ in range(20):
    step = env.reset()
    assert step.first()
    assert step.reward is None
    assert step.observation.frame[0, 1, 0]


def test_two_player_starts_are_legal():
  env = RandomStarts(make_nim(), 8)
  for seed in range(200):
    env.seed(seed)
    step = env.reset()
    sticks, player = step.observation.frame[0, 0]
    assert sticks >= 1
    assert step.observation.to_play == player


def test_starts_after_an_end():
  env = RandomStarts(registry.make("tiny:catch", seed=0), 8)
  assert len({num_started(step) for step in play(env, 600) if step.first()}) == 9


def test_seeds_give_different_episodes():
  env = RandomStarts(registry.make("minatar:breakout", seed=0, sticky_action_prob=0.0), 8)
  frames = set()
  for seed in range(40):
    env.seed(seed)
    frames.add(env.reset().observation.frame.tobytes())
  assert len(frames) > 20
