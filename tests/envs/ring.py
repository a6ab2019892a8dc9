"""A small Gymnasium environment whose best return is known; this module needs gymnasium."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Ring(gymnasium.Env):
  """Four cells in a ring. The reward is `scale` where the action has the parity of the cell.

  Attributes: `length` steps make an episode. A subclass or an argument replaces any of them.
  """

  length, scale = 8, 1.0
  action_space = spaces.Discrete(2)
  observation_space: Any = spaces.Box(0, 1, (4,), np.float32)

  def __init__(self, **settings):
    vars(self).update(settings)

  def observe(self):
    return np.eye(4, dtype=np.float32)[self.cell]

  def info(self):
    return {}

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self.cell, self.time = int(self.np_random.integers(4)), 0
    return self.observe(), self.info()

  def step(self, action):
    reward = self.scale * float(self.cell % 2 == int(action) % 2)
    self.cell, self.time = (self.cell + 1) % 4, self.time + 1
    return self.observe(), reward, self.time >= self.length, False, self.info()
