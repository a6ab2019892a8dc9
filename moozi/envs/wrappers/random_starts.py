"""An environment whose episodes begin with a few random legal actions, so that test episodes differ."""

import dm_env
import numpy as np
from dm_env import StepType, TimeStep

from moozi.envs.environment import Environment, check_seed
from moozi.envs.wrappers.wrapper import EnvironmentWrapper


class RandomStarts(EnvironmentWrapper):
  """Begins each episode of an environment with k random legal actions, k drawn uniformly from 0 to a maximum.

  What happens in them is not seen: rewards in them do not count, and the frame after them is FIRST. A start
  that ends the episode is drawn again, k too, on the environment's next game. The environment's own step cap
  counts
  them. With two players the one to move first follows from k. Where the environment goes on with a game after
  a
  life lost, nothing is played.

  Args:
    env: the environment.
    max_random_starts: the largest k; 0 leaves the environment as it is.
    seed: of k and of the actions, until `seed` is called; it does not seed the environment.

  Raises: ValueError: where max_random_starts is negative.
  Source: docs/architecture.md, "Evaluation"; Nair et al. 2015 have the idea with no-ops. Departures: any
  legal action.
  """

  def __init__(self, env: Environment, max_random_starts: int, seed: int = 0) -> None:
    if max_random_starts < 0:
      raise ValueError(f"max_random_starts={max_random_starts}: must not be negative")
    super().__init__(env)
    self._max_random_starts = max_random_starts
    self._random = _stream(seed)
    self._needs_reset = True

  def seed(self, seed: int) -> None:
    """Seeds the environment and the random starts; see `Environment.seed`."""
    super().seed(seed)
    self._random = _stream(seed)

  def reset(self) -> TimeStep:
    """Starts an episode and plays its random actions; returns the step after them as FIRST."""
    self._needs_reset = False
    step = self._env.reset()
    if step.observation.is_continued:
      return step
    while True:
      for _ in range(int(self._random.integers(self._max_random_starts + 1))):
        legal = np.flatnonzero(step.observation.legal_actions_mask)
        step = self._env.step(int(self._random.choice(legal)))
        if step.last():
          break
      if not step.last():
        return dm_env.restart(step.observation)
      step = self._env.reset()
      if step.observation.is_continued:  # a life lost in a start: it takes one more reset to begin anew
        step = self._env.reset()

  def step(self, action: int) -> TimeStep:
    """See `Environment.step`: the reset after an end has its random start too."""
    if self._needs_reset:
      return self.reset()
    step = self._env.step(action)
    self._needs_reset = step.step_type is StepType.LAST
    return step


def _stream(seed: int) -> np.random.Generator:
  # A stream apart from the environment's own, though both follow from one seed.
  return np.random.default_rng([check_seed(seed), 0x57A7])
