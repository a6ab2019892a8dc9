"""An environment whose episodes are truncated after a number of steps, whatever its own rules say."""

import dm_env
from dm_env import TimeStep

from moozi.envs.environment import Environment
from moozi.envs.wrappers.wrapper import EnvironmentWrapper


class StepCap(EnvironmentWrapper):
  """Truncates the episodes of an environment; an end of the environment's own at the cap stays what it is.

  Args:
    env: the environment.
    max_steps: steps of an episode, counted from its FIRST step; where a life lost ends the episode in
      training, counted over the whole game.

  Raises: ValueError: where max_steps is below 1.
  """

  def __init__(self, env: Environment, max_steps: int) -> None:
    if max_steps < 1:
      raise ValueError(f"max_steps={max_steps}: must be at least 1")
    super().__init__(env)
    self._max_steps = max_steps
    self._num_steps = 0
    self._needs_reset = True

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
