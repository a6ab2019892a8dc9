"""CartPole with episodes of a fixed length, as a Gymnasium environment that all systems can make by its name.

`gym.make("fixed_cartpole:FixedCartPole-v0")` imports this module. When the pole falls, the environment is
reset within the episode. The length of an episode, and so the work of a system, does not depend on how well
the system plays. The time of each step is appended to `STAMPS`.
"""

import time
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
from job import read_job

NAME = "fixed_cartpole:FixedCartPole-v0"

STAMPS: list[float] = []
"""The times at which the steps of all environments of this process began, in seconds."""


class FixedCartPole(CartPoleEnv):  # type: ignore[misc]
  def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    STAMPS.append(time.perf_counter())
    observation, _, has_fallen, _, info = super().step(int(action))
    if has_fallen:
      observation, info = self.reset()
    return observation, 1.0 - has_fallen, False, False, info


gym.register(id="FixedCartPole-v0", entry_point=FixedCartPole, max_episode_steps=read_job().episode_length)
