"""A wrapper of your own: selects one entry of a dictionary observation. `Room` is a Gymnasium environment.

In this folder: `moozi train tiny/catch env.name=wrapper:Room env.wrappers=wrapper:image`, or
`python wrapper.py`. For MiniGrid: `env.name=gymnasium:minigrid:MiniGrid-Empty-5x5-v0`.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

import moozi


@moozi.register_wrapper("image")
def image(env):
  space = env.observation_space["image"]
  return gymnasium.wrappers.TransformObservation(env, lambda observation: observation["image"], space)


@moozi.register_environment("room")
class Room(gymnasium.Env):
  """The goal is the right end of a corridor; the observation is an image and a text."""

  action_space = spaces.Discrete(2)
  observation_space = spaces.Dict(image=spaces.Box(0, 1, (1, 5, 1), np.uint8), mission=spaces.Text(20))

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._at = 2
    return {"image": np.eye(1, 5, self._at, dtype=np.uint8)[..., None], "mission": "right"}, {}

  def step(self, action):
    self._at += 2 * int(action) - 1
    image = np.eye(1, 5, self._at, dtype=np.uint8)[..., None]
    return {"image": image, "mission": "right"}, float(self._at == 4), self._at in (0, 4), False, {}


if __name__ == "__main__":
  moozi.train("tiny/catch", env={"name": "room", "wrappers": ["image"]})
