"""One seat of a game as an environment of one player; other players, which it calls, play the other seats.

From the agent's side the others' moves are chance. The agent's reward at a step sums what its seat gains
until its next decision or the end, including gains before its first decision. A game that ends before the
seat's first decision is not shown; another game starts.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from moozi.core import plugins
from moozi.core.errors import UserError
from moozi.envs.environment import Game
from moozi.envs.players import CustomPlayer, mcts_simulations
from moozi.envs.suites.open_spiel.rules import CHANCE, Rules, package, sample_chance

_MAX_TRIES = 1000
_STREAM = 0x5EA7
_Choose = Callable[[Any, int], int]  # (state, player) → action


class SeatGame(Game):
  """A game in which the agent plays one seat.

  At each reset, the seat is drawn if it is not fixed, and for each other seat one of `others` is drawn. The
  draws follow from the environment's seed. They do not change the deals, which the same seed repeats in
  another seat.

  Args:
    seat: the agent's seat; "random" draws one for each episode.
    others: names of players. A name given twice is drawn twice as often.
  """

  def __init__(self, rules: Rules, seat: int | Literal["random"], others: Sequence[str]) -> None:
    if seat != "random" and seat >= rules.num_seats:
      raise UserError(
        f"env.kwargs.seat={seat}: {rules.spec.name} has {rules.num_seats} seats; must be all, random, or "
        f"from 0 to {rules.num_seats - 1}"
      )
    self._rules, self._fixed_seat = rules, seat
    self._return = 0.0
    self._makers = [_maker(rules, name, f"env.kwargs.others[{i}]") for i, name in enumerate(others)]
    self.seed(0)
    self.reset()

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)
    self._seat_random = np.random.default_rng([seed, _STREAM])

  def reset(self) -> None:
    for _ in range(_MAX_TRIES):
      if self._start():
        return
    raise UserError(
      f"env.name={self._rules.spec.name}: seat {self.seat} has no decision in {_MAX_TRIES} games"
    )

  def step(self, action: int) -> tuple[float, bool, bool]:
    self._state.apply_action(action)
    self._play_others()
    gained, self._return = self._return, float(self._state.returns()[self.seat])
    return self._return - gained, self._state.is_terminal(), False

  def frame(self) -> np.ndarray:
    return self._rules.frame(self._state, self.seat)

  def legal_actions_mask(self) -> np.ndarray:
    return self._rules.legal_actions_mask(self._state)

  def _start(self) -> bool:
    """Starts a game; returns whether the seat has a decision in it."""
    random, num_seats = self._seat_random, self._rules.num_seats
    self._state = self._rules.game.new_initial_state()
    fixed = self._fixed_seat
    self.seat = int(random.integers(num_seats)) if fixed == "random" else fixed
    self._players: dict[int, _Choose] = {}
    for player in range(num_seats):
      maker, player_seed = self._makers[random.integers(len(self._makers))], int(random.integers(2**31))
      if player != self.seat:
        self._players[player] = maker(player_seed)
    self._return = 0.0
    self._play_others()
    return not self._state.is_terminal()

  def _play_others(self) -> None:
    """Plays chance and the other seats until the seat's next decision or the end."""
    state = self._state
    while not state.is_terminal() and state.current_player() != self.seat:
      player = state.current_player()
      if player == CHANCE:
        sample_chance(state, self._random)
      else:
        state.apply_action(self._players[player](state, player))


def mcts_bot(rules: Rules, simulations: int, seed: int) -> Any:
  """Returns the package's MCTS bot with random rollouts, whose `step(state)` returns an action.

  The settings are those of the package's example: UCT with c = 2, one rollout per simulation, and backup of
  solved positions. For a game in Python it is the package's bot in Python: the other one ends the process.
  """
  pyspiel, seed = package(), seed % 2**31
  if rules.is_in_python:
    mcts = importlib.import_module("open_spiel.python.algorithms.mcts")
    random = np.random.RandomState(seed)
    evaluator = mcts.RandomRolloutEvaluator(1, random)
    return mcts.MCTSBot(rules.game, 2.0, simulations, evaluator, solve=True, random_state=random)
  evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
  return pyspiel.MCTSBot(rules.game, evaluator, 2.0, simulations, 1000, True, seed, False)


def _maker(rules: Rules, name: str, key: str) -> Callable[[int], _Choose]:
  """Returns a function that maps a seed to a player of one episode."""
  simulations = mcts_simulations(name)
  if simulations is not None:
    if not rules.is_perfect_information:
      raise UserError(f"{key}={name}: would see what is hidden in {rules.spec.name}; must be another player")
    return lambda seed: _mcts_player(rules, simulations, seed)
  if name == "random":
    return _random_player
  plugin = plugins.PLAYERS.get(name, key)
  return lambda seed: _custom_player(rules, CustomPlayer(plugin, rules.spec, seed))


def _random_player(seed: int) -> _Choose:
  random = np.random.default_rng(seed)
  return lambda state, player: int(random.choice(state.legal_actions()))


def _mcts_player(rules: Rules, simulations: int, seed: int) -> _Choose:
  bot = mcts_bot(rules, simulations, seed)
  return lambda state, player: int(bot.step(state))


def _custom_player(rules: Rules, custom: CustomPlayer) -> _Choose:
  return lambda state, player: custom.action(rules.frame(state, player), rules.legal_actions_mask(state))
