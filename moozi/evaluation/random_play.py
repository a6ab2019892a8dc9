"""Measures the returns of random play, a baseline for trained agents."""

import contextlib

import numpy as np
from jaxtyping import Float

from moozi.core.config import Config
from moozi.envs import registry
from moozi.envs.environment import Environment, random_action
from moozi.envs.players import Player, Seats
from moozi.envs.table import view_of
from moozi.envs.wrappers import RandomStarts
from moozi.evaluation.opponents import make_opponent, seat_of
from moozi.ops.signs import player_sign


def random_returns(config: Config, num_episodes: int) -> Float[np.ndarray, "N"]:
  """Plays the evaluation's episodes with uniformly random legal actions.

  With two players, `evaluation.opponent` plays the other seat; if that is `self`, random play has both seats.

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
    opponent = make_opponent(config, env.env_spec)
    played = [_play(config, env, opponent, episode, random) for episode in range(num_episodes)]
  return np.array(played, np.float64)


def _play(
  config: Config, env: Environment, opponent: Player | None, episode: int, random: np.random.Generator
) -> float:
  seed, seats = config.evaluation.seed + episode, Seats()
  env.seed(seed)
  seat = seat_of(episode) if env.env_spec.num_players == 2 else 0
  seats.start({0: (env, {} if opponent is None else {1 - seat: (opponent, seed)})})
  timestep, total = env.reset(), 0.0
  for _ in range(config.evaluation.max_episode_steps):
    views = {0: view_of(timestep.observation)}
    actions = seats.act(views) or {0: random_action(env.env_spec, views[0].legal, random)}
    seats.observe(views, actions)
    timestep = env.step(actions[0])
    total += float(player_sign(views[0].seat, seat)) * float(timestep.reward)
    if timestep.last():
      break
  return total
