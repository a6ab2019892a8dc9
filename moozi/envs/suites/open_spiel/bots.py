"""Bots that read the state of a game: the package's MCTS, in its own games and in users' games."""

import copy
import importlib
import importlib.util
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dm_env
import numpy as np

from moozi.core.errors import UserError, as_exceptions, one_line
from moozi.core.text import missing_package
from moozi.envs.checked import CheckedEnvironment
from moozi.envs.environment import Environment, EpisodePlayer
from moozi.envs.suites.open_spiel.rules import Rules, package
from moozi.ops.signs import player_sign


class _StateBot:
  """The package's MCTS in the current state of a game."""

  def __init__(self, bot: Any, state: Callable[[], Any]) -> None:
    self._bot, self._state = bot, state

  def action(self, observation: np.ndarray, legal: np.ndarray) -> int:
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


def mcts(rules: Rules, simulations: int, seed: int, state: Callable[[], Any]) -> EpisodePlayer:
  """Makes the package's MCTS bot with random rollouts.

  The settings are those of the package's example: UCT with c = 2, one rollout per simulation, and backup of
  solved positions. For a game whose rules are in Python, the bot is the package's Python bot, because the C++
  bot crashes on such games.

  Args:
    state: returns the current state of the game.

  Raises: UserError: the game has hidden information.
  """
  if not rules.is_perfect_information:
    raise UserError(f"mcts: would see what is hidden in {rules.spec.name}; must be another player")
  pyspiel, seed = package(), seed % 2**31
  if rules.is_in_python:
    bot = _python_bot(rules.game, simulations, seed)
  else:
    evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
    bot = pyspiel.MCTSBot(rules.game, evaluator, 2.0, simulations, 1000, True, seed, False)
  return _StateBot(bot, state)


def mcts_in(environment: Environment, simulations: int, seed: int) -> EpisodePlayer:
  """Makes the package's Python MCTS bot for an environment with `max_moves`, with the settings of `mcts`.

  The bot searches copies of the environment, from the state after the actions in `environment.position()`.

  Raises: UserError: the environment has hidden information, it cannot be copied, or the package is not
    installed.
  """
  spec = environment.env_spec
  if not spec.is_perfect_information:
    raise UserError(f"mcts: would see what is hidden in {spec.name}; must be another player")
  if importlib.util.find_spec("pyspiel") is None:
    raise missing_package("mcts", "open_spiel")
  try:
    with as_exceptions():
      start = CheckedEnvironment(environment.clone())
  except Exception as error:
    raise UserError(f"mcts: {spec.name} cannot be copied (`clone`): {one_line(error)}") from error
  kinds = package().GameType
  kind = SimpleNamespace(reward_model=kinds.RewardModel.TERMINAL, dynamics=kinds.Dynamics.SEQUENTIAL)
  # Most games end with 1, 0 or -1. Where a return is larger, the largest one is not known: see `_State`.
  bot = _python_bot(
    SimpleNamespace(get_type=lambda: kind, max_utility=lambda: 1.0), simulations, seed % 2**31
  )

  def state() -> _State:
    out = _State(start.clone(), bot)
    for action in CheckedEnvironment(environment).position():
      if action >= 0:
        out.apply_action(int(action))
    return out

  return _StateBot(bot, state)


def _python_bot(game: Any, simulations: int, seed: int) -> Any:
  module, random = importlib.import_module("open_spiel.python.algorithms.mcts"), np.random.RandomState(seed)
  evaluator = module.RandomRolloutEvaluator(1, random)
  return module.MCTSBot(game, 2.0, simulations, evaluator, solve=True, random_state=random)


class _State:
  """A copy of an environment as the bot sees a state of the package.

  The bot takes a proven return of `max_utility` for the best one and searches no further. The first return
  above 1 sets `max_utility` to infinity: then every action is searched.
  """

  def __init__(self, env: Environment, bot: Any) -> None:
    self._env, self._bot = env, bot
    self._show(env.reset())
    self._returns = (0.0,) * env.env_spec.num_players

  def clone(self) -> "_State":
    out = copy.copy(self)
    out._env = self._env.clone()
    return out

  def apply_action(self, action: int) -> None:
    mover, step = self._player, self._env.step(action)
    reward = float(step.reward)
    self._returns = tuple(
      total + float(player_sign(mover, player)) * reward for player, total in enumerate(self._returns)
    )
    if max(self._returns) > 1:
      self._bot.max_utility = math.inf
    self._show(step)

  def _show(self, step: dm_env.TimeStep) -> None:
    self._legal, self._player = step.observation.legal_actions_mask, int(step.observation.to_play)
    self._is_over = bool(step.last())

  def legal_actions(self, player: int | None = None) -> list[int]:
    found: list[int] = np.flatnonzero(self._legal).tolist()
    return found

  def current_player(self) -> int:
    return self._player

  def is_terminal(self) -> bool:
    return self._is_over

  def is_chance_node(self) -> bool:
    return False

  def returns(self) -> tuple[float, ...]:
    return self._returns
