"""Bots that read the state of a game: the package's MCTS."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from moozi.core.errors import UserError
from moozi.envs.environment import Bot
from moozi.envs.suites.open_spiel.rules import Rules, package


class _StateBot:
  """The package's MCTS in the current state of a game."""

  def __init__(self, bot: Any, state: Callable[[], Any]) -> None:
    self._bot, self._state = bot, state

  def action(self, legal_actions_mask: np.ndarray) -> int:
    return int(self._bot.step(self._state()))

  def search(self) -> list[tuple[int, int, float | None]]:
    """Searches the current state; returns (action, visits, value for the player to move) of each action.

    The value is None for an action without visits.
    """
    children = self._bot.mcts_search(self._state()).children
    return [
      (int(x.action), int(x.explore_count), x.total_reward / x.explore_count if x.explore_count else None)
      for x in children
    ]


def mcts(rules: Rules, simulations: int, seed: int, state: Callable[[], Any], where: str = "mcts") -> Bot:
  """Makes the package's MCTS bot with random rollouts.

  The settings are those of the package's example: UCT with c = 2, one rollout per simulation, and backup of
  solved positions. For a game whose rules are in Python, it is the package's Python bot, because the C++ bot
  crashes on such games.

  Args:
    state: returns the current state of the game.
    where: the player, with which the error message starts.

  Raises: UserError: the game has hidden information.
  """
  if not rules.is_perfect_information:
    raise UserError(f"{where}: would see what is hidden in {rules.spec.name}; must be another player")
  pyspiel, seed = package(), seed % 2**31
  if rules.is_in_python:
    module, random = importlib.import_module("open_spiel.python.algorithms.mcts"), np.random.RandomState(seed)
    evaluator = module.RandomRolloutEvaluator(1, random)
    bot = module.MCTSBot(rules.game, 2.0, simulations, evaluator, solve=True, random_state=random)
  else:
    evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
    bot = pyspiel.MCTSBot(rules.game, evaluator, 2.0, simulations, 1000, True, seed, False)
  return _StateBot(bot, state)
