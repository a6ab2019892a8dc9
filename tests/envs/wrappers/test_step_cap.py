"""The step cap truncates, and leaves the environment's own ends alone."""

import pytest

from moozi.envs import registry
from moozi.envs.wrappers.step_cap import StepCap
from tests.envs.contract import EnvironmentContract, play
from tests.envs.environments import make_lives


class TestStepCap(EnvironmentContract):
  def make(self):
    return StepCap(registry.make("minatar:breakout", seed=0), 7)


class TestStepCapWithLives(EnvironmentContract):
  goes_on_after_a_life_lost = True

  def make(self):
    return StepCap(make_lives(), 10)


def test_cap_counts_the_whole_game_of_several_lives():
  num_cut = 0
  for step in play(StepCap(make_lives(), 10), 600):
    count = step.observation.frame[0, 0, 0]
    is_cut = step.last() and step.discount == 1.0
    # The step that goes on after a life lost counts, and cannot be cut itself.
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


def test_end_at_the_cap_stays_an_end():
  env = StepCap(registry.make("tiny:catch", seed=0), 9)
  step, count = steps_until_last(env)
  assert (count, step.discount) == (9, 0.0)
  assert abs(step.reward) == 1.0


def test_bad_cap():
  with pytest.raises(ValueError, match="max_steps=0"):
    StepCap(registry.make("tiny:catch", seed=0), 0)
