"""The random first moves of an episode that an experiment plays itself."""

import dm_env
import numpy as np

import moozi

MAX_RANDOM_STARTS = 8


def random_start(env: moozi.Environment, seed: int) -> tuple[dm_env.TimeStep, float]:
  """Resets an environment and makes k random moves, k uniform in 0 … `MAX_RANDOM_STARTS`, or until it ends.

  Unlike `moozi.envs.wrappers.RandomStarts`, it does not begin again if a move ends the episode. It ignores
  the mask of legal actions.

  Returns: the last time step, and the sum of the moves' rewards.
  """
  step, total = env.reset(), 0.0
  rng = np.random.default_rng(seed)
  for _ in range(rng.integers(MAX_RANDOM_STARTS + 1)):
    step = env.step(int(rng.integers(env.action_spec().num_values)))
    total += float(step.reward)
    if step.last():
      break
  return step, total
