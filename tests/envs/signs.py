"""A Gymnasium environment whose best action follows from an image and a vector together."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Signs(gymnasium.Env):
  """The image says whether the right action is below 2, and the vector whether it is odd.

  The right action has reward 1. Each of the 4 steps of an episode shows another image and vector, so random
  play has a return of 1 on average, and the best play by one of the two alone 2.
  """

  length = 4
  action_space = spaces.Discrete(4)
  observation_space = spaces.Dict(
    sign=spaces.Box(-2.0, 2.0, (2,), np.float32), image=spaces.Box(0, 255, (5, 6, 2), np.uint8)
  )

  def observe(self):
    is_right, is_odd = self.np_random.integers(2, size=2)
    self.best = 2 * is_right + is_odd
    image = self.np_random.integers(0, 100, (5, 6, 2)).astype(np.uint8)
    image[:, slice(3, 6) if is_right else slice(0, 3), 0] += 150
    return {"image": image, "sign": np.array([2.0 * is_odd - 1.0, self.np_random.uniform()], np.float32)}

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self.time = 0
    return self.observe(), {}

  def step(self, action):
    reward = float(action == self.best)
    self.time += 1
    return self.observe(), reward, self.time == self.length, False, {}
