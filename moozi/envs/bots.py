"""Bots of games: random play, OpenSpiel's MCTS and alpha-beta, and those that a game has itself."""

import numpy as np

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import EpisodePlayer, check_seed, random_action
from moozi.envs.suites.open_spiel.bots import bot_by_copies
from moozi.envs.table import PlayedGame, Table

SEARCHES = {"mcts": 100, "alpha_beta": 4}
"""The default budget of each bot that searches: the simulations of `mcts`, the depth of `alpha_beta`."""


class RandomBot:
  """Draws uniformly from the legal actions. Raises ValueError if the seed is negative or not an integer."""

  def __init__(self, spec: EnvSpec, seed: int) -> None:
    self._spec, self._random = spec, np.random.default_rng([check_seed(seed), 0xB07])

  def action(self, observation: np.ndarray, legal: np.ndarray) -> int:
    return random_action(self._spec, legal, self._random)


def make_bot(game: PlayedGame, kind: str, budget: int, seed: int) -> EpisodePlayer:
  """Makes a bot for the current episode or the next one. A bot of the game itself takes precedence.

  Args:
    kind: "random" draws uniformly from the legal actions of any game. "mcts" and "alpha_beta" are OpenSpiel's
      tree searches, for OpenSpiel's games of perfect information and for environments with `max_moves`;
      "alpha_beta" needs two players with opposite gains, and no chance. A game's own `make_bot` may accept
      other kinds.
    budget: the simulations of "mcts", the depth of "alpha_beta".

  Raises: UserError: the game has no such bot.
  """
  bot = game.make_bot(kind, budget, seed)
  if bot is not None:
    return bot
  if kind == "random":
    return RandomBot(_spec_of(game), seed)
  environment = game.environment if isinstance(game, Table) else game
  if kind in SEARCHES and environment is not None and environment.max_moves is not None:
    return bot_by_copies(kind, environment, budget, seed)
  raise _no_such_bot(kind, _spec_of(game), environment is None)


def _spec_of(game: PlayedGame) -> EnvSpec:
  return game.spec if isinstance(game, Table) else game.env_spec


def _no_such_bot(kind: str, spec: EnvSpec, is_own_table: bool) -> UserError:
  hint = (
    f"; {kind} cannot copy a moozi.Table"
    if is_own_table
    else f"; {kind} plays games of OpenSpiel, and games without chance that can be copied: set max_moves of "
    "the moozi.Game"
  )
  return UserError(
    f"{kind}: {spec.name} has no such player; all environments have random, self{hint * (kind in SEARCHES)}"
  )
