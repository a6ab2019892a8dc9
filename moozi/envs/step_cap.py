"""A world whose episodes are truncated after a number of steps, whatever its own rules say."""

import dm_env
import numpy as np
from dm_env import TimeStep

from moozi.core.spec import EnvSpec
from moozi.envs.environment import Bot, Environment


class StepCap(Environment):
  """Truncates the episodes of a world; an end of the world's own at the cap stays what it is.

  Args:
    env: the world.
    max_steps: steps of an episode, counted from its FIRST step; where a life lost ends the episode in
      training, counted over the whole game.

  Raises: ValueError: where max_steps is below 1.
  """

  def __init__(self, env: Environment, max_steps: int) -> None:
    if max_steps < 1:
      raise ValueError(f"max_steps={max_steps}: must be at least 1")
    self._env, self._max_steps = env, max_steps
    self._num_steps = 0
    self._needs_reset = True

  @property
  def world_spec(self) -> EnvSpec:
    """The facts of the world within."""
    return self._env.world_spec

  def seed(self, seed: int) -> None:
    """Seeds the world; see `Environment.seed`."""
    self._env.seed(seed)

  def reset(self) -> TimeStep:
    """Starts an episode."""
    self._needs_reset = False
    step = self._env.reset()
    self._num_steps = self._num_steps + 1 if step.observation.is_continued else 0
    return step

  def step(self, action: int) -> TimeStep:
    """See `Environment.step`."""
    if self._needs_reset:
      return self.reset()
    step = self._env.step(action)
    self._num_steps += 1
    if not step.last() and self._num_steps >= self._max_steps:
      step = dm_env.truncation(step.reward, step.observation)
    self._needs_reset = step.last()
    return step

  @property
  def will_continue(self) -> bool:
    """Whether the next reset goes on with the game; see `Environment.will_continue`."""
    return self._env.will_continue

  def make_bot(self, kind: str, simulations: int, seed: int) -> Bot:
    """A rival in the world; see `Environment.make_bot`."""
    return self._env.make_bot(kind, simulations, seed)

  def render(self) -> np.ndarray | None:
    """The world's picture."""
    return self._env.render()

  def close(self) -> None:
    """Closes the world."""
    self._env.close()
