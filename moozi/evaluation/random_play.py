"""Measures the returns of random play, a baseline for trained agents."""

import contextlib

import numpy as np
from jaxtyping import Float

from moozi.core.config import Config
from moozi.envs import registry
from moozi.envs.environment import Environment
from moozi.envs.players import observe
from moozi.envs.wrappers import RandomStarts
from moozi.evaluation.opponents import make_opponent, seat_of
from moozi.ops.players import player_sign


def random_returns(config: Config, num_episodes: int) -> Float[np.ndarray, "N"]:
  """Plays the evaluation's episodes with uniformly random legal actions.

  With two players, random play meets the opponent `evaluation.opponent`.

  Args:
    config: the run's configuration; `env` and `evaluation` are used.

  Returns: undiscounted returns in float64; with two players, those of the seat that plays at random.
  """
  evaluation = config.evaluation
  env = registry.make(config.env.name, evaluation.seed, is_testing=True, **config.env.arguments)
  # The environments and the random starts are seeded with `evaluation.seed` too. The second number makes this
  # random stream independent of theirs.
  random = np.random.default_rng([evaluation.seed, 0x9A3D])
  with contextlib.closing(RandomStarts(env, evaluation.max_random_starts)) as env:
    return np.array([_play(config, env, episode, random) for episode in range(num_episodes)], np.float64)


def _play(config: Config, env: Environment, episode: int, random: np.random.Generator) -> float:
  seed, spec = config.evaluation.seed + episode, env.env_spec
  env.seed(seed)
  opponent = make_opponent(config, spec, env, seed)
  seat = seat_of(episode) if spec.num_players == 2 else 0
  timestep, total = env.reset(), 0.0
  for _ in range(config.evaluation.max_episode_steps):
    seen = timestep.observation
    if opponent is None or seen.to_play == seat:
      action = int(random.choice(np.flatnonzero(seen.legal_actions_mask)))
      observe(opponent, spec, seen.frame, seen.legal_actions_mask, action)
    else:
      action = opponent.action(seen.frame, seen.legal_actions_mask)
    timestep = env.step(action)
    total += float(player_sign(seen.to_play, seat)) * float(timestep.reward)
    if timestep.last():
      break
  return total
