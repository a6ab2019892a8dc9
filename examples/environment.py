"""An environment of your own: a hallway with the goal at one end.

In this folder: `moozi train tiny/catch env.name=environment:make`, or `python environment.py`.
"""

import dm_env
import numpy as np
from dm_env import specs

import moozi


class Hallway(dm_env.Environment):
  """The observation shows the position and the goal. The reward is 1 at the goal, 0 at the other end."""

  def __init__(self, seed):
    self._random = np.random.default_rng(seed)

  def action_spec(self):
    return specs.DiscreteArray(2)

  def observation_spec(self):
    return specs.BoundedArray((2,), np.float32, minimum=-3, maximum=3)

  def reset(self):
    self._at, self._goal = 0, int(self._random.choice([-3, 3]))
    return dm_env.restart(np.array([self._at, self._goal], np.float32))

  def step(self, action):
    self._at += 2 * action - 1
    observation = np.array([self._at, self._goal], np.float32)
    if abs(self._at) == 3:
      return dm_env.termination(float(self._at == self._goal), observation)
    return dm_env.transition(0.0, observation)


make = moozi.register_environment("hallway")(Hallway)
if __name__ == "__main__":
  moozi.train("tiny/catch", env={"name": "hallway"})
