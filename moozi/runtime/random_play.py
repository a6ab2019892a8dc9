"""What random play returns: the first figure to hold a trained agent against."""

import numpy as np

from moozi.core.config import Config
from moozi.envs import registry
from moozi.envs.random_starts import RandomStarts


def random_returns(config: Config, num_episodes: int) -> np.ndarray:
  """Returns of uniformly random legal play under the evaluation's own starts.

  Args:
    config: the run's configuration; `env` and `evaluation` are read.
    num_episodes: how many.

  Returns: [num_episodes] float64, undiscounted.
  """
  evaluation = config.evaluation
  random = np.random.default_rng(evaluation.seed)
  world = registry.make(config.env.name, evaluation.seed, is_testing=True, **config.env.kwargs)
  env = RandomStarts(world, evaluation.max_random_starts)
  returns = np.zeros(num_episodes)
  for episode in range(num_episodes):
    env.seed(evaluation.seed + episode)
    timestep = env.reset()
    for _ in range(evaluation.max_episode_steps):
      legal = np.flatnonzero(timestep.observation.legal_actions_mask)
      timestep = env.step(int(random.choice(legal)))
      returns[episode] += timestep.reward
      if timestep.last():
        break
  env.close()
  return returns
