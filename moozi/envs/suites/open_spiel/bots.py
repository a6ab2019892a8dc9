"""Bots that read the state of a game: the package's MCTS and alpha-beta, in its own games and in users'."""

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
from moozi.core.spec import EnvSpec
from moozi.core.text import missing_package
from moozi.envs.checked import CheckedEnvironment
from moozi.envs.environment import Environment, EpisodePlayer
from moozi.envs.suites.open_spiel.rules import Rules, package
from moozi.ops.signs import player_sign

# The share of a return that each ply costs: of equal results, alpha-beta prefers the earlier win and the
# later loss.
_DELAY = 1e-6


class _MctsBot:
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


class _AlphaBetaBot:
  """The package's alpha-beta search of the current state of a game. A state at the depth limit is worth 0."""

  def __init__(self, game: Any, depth: int, seed: int, state: Callable[[], Any]) -> None:
    self._search = importlib.import_module("open_spiel.python.algorithms.minimax").alpha_beta_search
    self._game, self._depth, self._state = game, depth, state
    self._random = np.random.default_rng(seed)

  def action(self, observation: np.ndarray, legal: np.ndarray) -> int:
    # The search returns the first of the best actions, so a random order breaks ties uniformly.
    order = self._random.permutation(np.flatnonzero(legal)).tolist()
    root = _SearchedState(self._state(), order)
    _, action = self._search(self._game, root, lambda state: 0.0, self._depth)
    return int(action)


class _SearchedState:
  """A state of the package, or a `_State`, as alpha-beta sees it.

  Args:
    order: the legal actions of the root in the order in which they are searched.
  """

  def __init__(self, state: Any, order: list[int], ply: int = 0) -> None:
    self._state, self._order, self._ply = state, order, ply

  def clone(self) -> "_SearchedState":
    return _SearchedState(self._state.clone(), self._order, self._ply)

  def apply_action(self, action: int) -> None:
    self._state.apply_action(action)
    self._ply += 1

  def legal_actions(self) -> list[int]:
    return self._state.legal_actions() if self._ply else self._order

  def current_player(self) -> int:
    return self._state.current_player()

  def is_terminal(self) -> bool:
    return self._state.is_terminal()

  def player_return(self, player: int) -> float:
    return float(self._state.returns()[player]) * (1 - _DELAY * self._ply)


def bot_by_rules(
  kind: str, rules: Rules, budget: int, seed: int, state: Callable[[], Any]
) -> EpisodePlayer | None:
  """Makes a bot of the package for one of its games.

  Args:
    kind: "mcts" or "alpha_beta"; None is returned for any other.
    budget: the simulations of mcts, the depth of alpha_beta.
    state: returns the current state of the game.

  Raises: UserError: the bot cannot play the game.
  """
  make = {"mcts": _mcts, "alpha_beta": _alpha_beta}.get(kind)
  return None if make is None else make(rules, budget, seed, state)


def _mcts(rules: Rules, simulations: int, seed: int, state: Callable[[], Any]) -> EpisodePlayer:
  """Makes the package's MCTS bot with random rollouts.

  The settings are those of the package's example: UCT with c = 2, one rollout per simulation, and backup of
  solved positions. For a game whose rules are in Python, the bot is the package's Python bot, because the C++
  bot crashes on such games.
  """
  _check_visible("mcts", rules.spec)
  pyspiel, seed = package(), seed % 2**31
  if rules.is_in_python:
    bot = _python_bot(rules.game, simulations, seed)
  else:
    evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
    bot = pyspiel.MCTSBot(rules.game, evaluator, 2.0, simulations, 1000, True, seed, False)
  return _MctsBot(bot, state)


def _alpha_beta(rules: Rules, depth: int, seed: int, state: Callable[[], Any]) -> EpisodePlayer:
  """Makes the bot of the package's alpha-beta search.

  Raises: UserError: the game does not have two players with opposite gains, or it has hidden information or
    chance.
  """
  _check_visible("alpha_beta", rules.spec)
  is_zero_sum = rules.game.get_type().utility == package().GameType.Utility.ZERO_SUM
  if rules.num_seats != 2 or not rules.is_deterministic or not is_zero_sum:
    raise UserError(
      f"alpha_beta: {rules.spec.name} must have two players, no chance, and gains that are opposite"
    )
  return _AlphaBetaBot(rules.game, depth, seed, state)


def bot_by_copies(kind: str, environment: Environment, budget: int, seed: int) -> EpisodePlayer:
  """Makes a bot of the package for an environment with `max_moves`, with the settings of `bot_by_rules`.

  The bot searches copies of the environment, from the state after the actions in `environment.position()`.

  Args:
    kind: "mcts" or "alpha_beta".
    budget: the simulations of mcts, the depth of alpha_beta.

  Raises: UserError: the package is not installed, or the environment has hidden information, has one player
    where the bot needs two, or cannot be copied.
  """
  spec = environment.env_spec
  _check_visible(kind, spec)
  if kind == "alpha_beta" and spec.num_players != 2:
    raise UserError(f"alpha_beta: {spec.name} has one player; must have two")
  if importlib.util.find_spec("pyspiel") is None:
    raise missing_package(kind, "open_spiel")
  try:
    with as_exceptions():
      start = CheckedEnvironment(environment.clone())
  except Exception as error:
    raise UserError(f"{kind}: {spec.name} cannot be copied (`clone`): {one_line(error)}") from error
  types = package().GameType
  game_type = SimpleNamespace(
    reward_model=types.RewardModel.TERMINAL,
    dynamics=types.Dynamics.SEQUENTIAL,
    chance_mode=types.ChanceMode.DETERMINISTIC,
    information=types.Information.PERFECT_INFORMATION,
    utility=types.Utility.ZERO_SUM,
  )
  # Most games end with 1, 0 or -1. Where a return is larger, the largest one is not known: see `_State`.
  game = SimpleNamespace(get_type=lambda: game_type, max_utility=lambda: 1.0, num_players=lambda: 2)
  bot = _python_bot(game, budget, seed % 2**31) if kind == "mcts" else None

  def state() -> _State:
    out = _State(start.clone(), bot)
    for action in CheckedEnvironment(environment).position():
      if action >= 0:
        out.apply_action(int(action))
    return out

  return _AlphaBetaBot(game, budget, seed, state) if bot is None else _MctsBot(bot, state)


def _check_visible(kind: str, spec: EnvSpec) -> None:
  if not spec.is_perfect_information:
    raise UserError(f"{kind}: would see what is hidden in {spec.name}; must be another player")


def _python_bot(game: Any, simulations: int, seed: int) -> Any:
  module, random = importlib.import_module("open_spiel.python.algorithms.mcts"), np.random.RandomState(seed)
  evaluator = module.RandomRolloutEvaluator(1, random)
  return module.MCTSBot(game, 2.0, simulations, evaluator, solve=True, random_state=random)


class _State:
  """A copy of an environment as a bot sees a state of the package.

  MCTS takes a proven return of `max_utility` for the best one and searches no further. The first return
  above 1 sets `max_utility` to infinity: then every action is searched.

  Args:
    bot: the package's MCTS; None: another search.
  """

  def __init__(self, env: Environment, bot: Any | None) -> None:
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
    if self._bot is not None and max(self._returns) > 1:
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
