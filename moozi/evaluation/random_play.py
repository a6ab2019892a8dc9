"""What random play returns: the first figure to hold a trained agent against."""

import contextlib

import numpy as np

from moozi.core.config import Config
from moozi.envs import registry
from moozi.envs.environment import Environment
from moozi.envs.wrappers import RandomStarts
from moozi.evaluation.opponents import make_opponent, seat_of
from moozi.ops.players import player_sign


def random_returns(config: Config, num_episodes: int) -> np.ndarray:
  """Returns of uniformly random legal play under the evaluation's own starts, against its opponent.

  Args:
    config: the run's configuration; `env` and `evaluation` are read.
    num_episodes: how many.

  Returns: [num_episodes] float64, undiscounted; with two players those of the seat that plays at random.
  """
  evaluation = config.evaluation
  world = registry.make(config.env.name, evaluation.seed, is_testing=True, **config.env.kwargs)
  with contextlib.closing(RandomStarts(world, evaluation.max_random_starts)) as env:
    return _play(config, env, num_episodes)


def _play(config: Config, env: Environment, num_episodes: int) -> np.ndarray:
  evaluation = config.evaluation
  # A stream apart from those of the environments and of the random starts, which follow from the same seed.
  random = np.random.default_rng([evaluation.seed, 0x9A3D])
  returns = np.zeros(num_episodes)
  for episode in range(num_episodes):
    env.seed(evaluation.seed + episode)
    opponent = make_opponent(config, env.env_spec, env, evaluation.seed + episode)
    seat = seat_of(episode) if env.env_spec.num_players == 2 else 0
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
  return returns
