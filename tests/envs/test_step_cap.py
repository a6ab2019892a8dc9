"""The step cap truncates, and leaves the world's own ends alone."""

import pytest

from moozi.envs import registry
from moozi.envs.step_cap import StepCap
from tests.envs.contract import EnvironmentContract


class TestStepCap(EnvironmentContract):
  def make(self):
    return StepCap(registry.make("minatar:breakout", seed=0), 7)


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
