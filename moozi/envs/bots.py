"""Bots of games: random play, OpenSpiel's MCTS, and those that a game has itself."""

import numpy as np

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import EpisodePlayer, check_seed, random_action
from moozi.envs.suites.open_spiel.bots import mcts_in
from moozi.envs.table import PlayedGame, Table


class RandomBot:
  """Draws uniformly from the legal actions. Raises ValueError if the seed is negative or not an integer."""

  def __init__(self, spec: EnvSpec, seed: int) -> None:
    self._spec, self._random = spec, np.random.default_rng([check_seed(seed), 0xB07])

  def action(self, observation: np.ndarray, legal: np.ndarray) -> int:
    return random_action(self._spec, legal, self._random)


def make_bot(game: PlayedGame, kind: str, simulations: int, seed: int) -> EpisodePlayer:
  """Makes a bot for the current episode or the next one. A bot of the game itself takes precedence.

  Args:
    kind: "random" draws uniformly from the legal actions of any game. "mcts" is OpenSpiel's tree search, for
      OpenSpiel's games of perfect information and for environments with `max_moves`. A suite may have others.

  Raises: UserError: the game has no such bot.
  """
  bot = game.make_bot(kind, simulations, seed)
  if bot is not None:
    return bot
  if kind == "random":
    return RandomBot(_spec_of(game), seed)
  environment = game.environment if isinstance(game, Table) else game
  if kind == "mcts" and environment is not None and environment.max_moves is not None:
    return mcts_in(environment, simulations, seed)
  raise _no_such_bot(kind, _spec_of(game))


def _spec_of(game: PlayedGame) -> EnvSpec:
  return game.spec if isinstance(game, Table) else game.env_spec


def _no_such_bot(kind: str, spec: EnvSpec) -> UserError:
  which = {
    "mcts": "; mcts plays games of OpenSpiel, and games without chance that can be copied: set max_moves of "
    "the moozi.Game"
  }
  return UserError(
    f"{kind}: {spec.name} has no such player; all environments have random, self{which.get(kind, '')}"
  )
