"""What random play returns: the first figure to hold a trained agent against."""

import numpy as np

from moozi.core.config import Config
from moozi.envs import registry
from moozi.envs.random_starts import RandomStarts
from moozi.ops.players import player_sign
from moozi.runtime.opponents import make_opponent, seat_of


def random_returns(config: Config, num_episodes: int) -> np.ndarray:
  """Returns of uniformly random legal play under the evaluation's own starts, against its opponent.

  Args:
    config: the run's configuration; `env` and `evaluation` are read.
    num_episodes: how many.

  Returns: [num_episodes] float64, undiscounted; with two players those of the seat that plays at random.
  """
  evaluation = config.evaluation
  random = np.random.default_rng(evaluation.seed)
  world = registry.make(config.env.name, evaluation.seed, is_testing=True, **config.env.kwargs)
  env = RandomStarts(world, evaluation.max_random_starts)
  returns = np.zeros(num_episodes)
  for episode in range(num_episodes):
    env.seed(evaluation.seed + episode)
    opponent = make_opponent(config, env.world_spec, env, evaluation.seed + episode)
    seat = seat_of(episode) if env.world_spec.num_players == 2 else 0
    timestep = env.reset()
    for _ in range(evaluation.max_episode_steps):
      mask, mover = timestep.observation.legal_actions_mask, timestep.observation.to_play
      if opponent is None or mover == seat:
        action = int(random.choice(np.flatnonzero(mask)))
      else:
        action = opponent.action(mask)
      timestep = env.step(action)
      returns[episode] += float(player_sign(mover, seat)) * timestep.reward
      if timestep.last():
        break
  env.close()
  return returns
