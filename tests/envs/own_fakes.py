"""Worlds as a user might write them."""

import dm_env
import numpy as np
from dm_env import specs


class Counter(dm_env.Environment):
  """Counts to `length`; action 0 also draws lots for the reward."""

  def __init__(self, length=9) -> None:
    self._length = length
    self.seed(0)

  def seed(self, seed):
    self._random = np.random.default_rng(seed)

  def action_spec(self):
    return specs.DiscreteArray(3)

  def observation_spec(self):
    return specs.BoundedArray((2,), np.float32, 0, 9)

  def reset(self):
    self._count = 0
    return dm_env.restart(self._observe())

  def step(self, action):
    self._count += 1
    reward = float(self._random.integers(3)) if action == 0 else 0.0
    if self._count == self._length:
      return dm_env.termination(reward, self._observe())
    return dm_env.transition(reward, self._observe())

  def _observe(self):
    return np.array([self._count, self._random.random()], np.float32)


class _Unseeded(Counter):
  seed = None

  def __init__(self, length=9, seed=None) -> None:
    self._length = length
    self._random = np.random.default_rng(seed)


def make_counter():
  return Counter()


def make_seeded(seed, length=9):
  return _Unseeded(length, seed)


def make_unseeded():
  return _Unseeded()


def make_walk():
  from gymnasium import spaces

  from tests.envs.gymnasium_fakes import Walk

  return Walk(spaces.Box(-1, 1, (4,)))


def make_catch():
  from moozi.envs import registry

  return registry.make("tiny:catch", seed=0)
