"""Random starts: k uniform in its range, a function of the seed, never an end."""

import collections

import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.wrappers.random_starts import RandomStarts
from tests.envs.contract import EnvironmentContract, assert_same, play
from tests.envs.environments import make_lives, make_nim


class TestRandomStarts(EnvironmentContract):
  def make(self):
    return RandomStarts(registry.make("minatar:breakout", seed=0), 8)


class TestTwoPlayerRandomStarts(EnvironmentContract):
  def make(self):
    return RandomStarts(make_nim(), 8)


class TestRandomStartsWithLives(EnvironmentContract):
  goes_on_after_a_life_lost = True

  def make(self):
    return RandomStarts(make_lives(), 8)


def test_a_game_that_goes_on_has_no_random_start_and_a_start_loses_no_life():
  env = RandomStarts(make_lives(), 8)
  counts, before = [], None
  for step in play(env, 2000):
    count, lives = step.observation.frame[0, 0]
    if step.observation.is_continued:
      assert count == before + 1
    elif step.first():
      # Whatever was played before this frame cost no life: that start was drawn again, in a new game.
      assert lives == 3
      assert step.observation.is_continued is False
      counts.append(count)
    before = count
  assert max(counts) == 6
  assert min(counts) == 0


def num_started(step):
  """How many random steps went before this first frame of Catch: the row of its ball."""
  return int(np.argwhere(step.observation.frame[..., 0])[0][0])


def test_k_is_uniform_from_0_to_the_maximum():
  env = RandomStarts(registry.make("tiny:catch", seed=0), 8)
  counts = collections.Counter()
  for seed in range(1800):
    env.seed(seed)
    counts[num_started(env.reset())] += 1
  assert sorted(counts) == list(range(9))
  # 1800 draws of nine: 200 each, standard deviation 13.
  assert all(150 < count < 250 for count in counts.values())


def test_random_actions_are_all_played():
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


def test_a_start_that_ends_the_episode_is_drawn_again():
  # A corridor of three cells ends at the first step: only k = 0 starts an episode.
  env = RandomStarts(registry.make("tiny:corridor", seed=0, length=3), 8)
  for _ in range(20):
    step = env.reset()
    assert step.first()
    assert step.reward is None
    assert step.observation.frame[0, 1, 0]


def test_a_start_is_legal_for_whoever_moves():
  env = RandomStarts(make_nim(), 8)
  for seed in range(200):
    env.seed(seed)
    step = env.reset()
    sticks, player = step.observation.frame[0, 0]
    assert sticks >= 1
    assert step.observation.to_play == player


def test_starts_after_an_end_are_random_too():
  env = RandomStarts(registry.make("tiny:catch", seed=0), 8)
  starts = {num_started(step) for step in play(env, 600) if step.first()}
  assert len(starts) == 9


def test_episodes_of_different_seeds_differ():
  env = RandomStarts(registry.make("minatar:breakout", seed=0, sticky_action_prob=0.0), 8)
  frames = set()
  for seed in range(40):
    env.seed(seed)
    frames.add(env.reset().observation.frame.tobytes())
  assert len(frames) > 20


def test_a_negative_maximum_is_refused():
  with pytest.raises(ValueError, match="max_random_starts=-1"):
    RandomStarts(make_nim(), -1)
