"""One seat of a game as an environment of one player; given players play the other seats.

To the agent, the moves of the other players are part of the environment's randomness. The reward of a step is
what the agent's seat gains until its next decision or the end. The first reward includes gains before the
first decision. A game that ends before the seat's first decision is skipped, and another game starts.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from moozi.core import plugins
from moozi.core.errors import UserError
from moozi.envs.environment import Bot, Game, RandomBot
from moozi.envs.players import CustomPlayer, Observer, mcts_simulations, observe
from moozi.envs.suites.open_spiel.bots import mcts
from moozi.envs.suites.open_spiel.rules import CHANCE, Rules, sample_chance

_MAX_TRIES = 1000
_STREAM = 0x5EA7


class SeatGame(Game):
  """A game in which the agent plays one seat.

  Each reset draws the seat if it is not fixed, and one of `others` for each other seat. These draws and the
  game's chance outcomes have separate random streams, both from the environment's seed, so the first deal of
  a seed is the same in every seat.

  Args:
    seat: the agent's seat; "random" draws one for each episode.
    others: names of players. A name that is listed twice is drawn twice as often.
    key: the option that has the names, for errors.
    allow_code: whether runs that `others` names may import the modules that they name.
  """

  def __init__(
    self,
    rules: Rules,
    seat: int | Literal["random"],
    others: Sequence[str],
    key: str = "others",
    allow_code: bool = False,
  ) -> None:
    if seat != "random" and seat >= rules.num_seats:
      raise UserError(
        f"env.kwargs.seat={seat}: {rules.spec.name} has {rules.num_seats} seats; must be all, random, or "
        f"from 0 to {rules.num_seats - 1}"
      )
    self._rules, self._fixed_seat = rules, seat
    self._return = 0.0
    self._makers = [
      _maker(rules, name, f"env.kwargs.{key}[{i}]", allow_code, lambda: self._state)
      for i, name in enumerate(others)
    ]
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
    self._play(self.seat, action)
    self._play_others()
    gained, self._return = self._return, float(self._state.returns()[self.seat])
    return self._return - gained, self._state.is_terminal(), False

  def frame(self) -> np.ndarray:
    return self._rules.frame(self._state, self.seat)

  def legal_actions_mask(self) -> np.ndarray:
    return self._rules.legal_actions_mask(self._state)

  def _start(self) -> bool:
    """Starts a game and plays until the seat's first decision; returns whether it has one."""
    random, num_seats = self._seat_random, self._rules.num_seats
    self._state = self._rules.game.new_initial_state()
    fixed = self._fixed_seat
    self.seat = int(random.integers(num_seats)) if fixed == "random" else fixed
    self._players: dict[int, Bot | CustomPlayer] = {}
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
        self._play(player, self._choose(player))

  def _choose(self, player: int) -> int:
    chooser, legal = self._players[player], self._rules.legal_actions_mask(self._state)
    if isinstance(chooser, CustomPlayer):
      return chooser.action(self._rules.frame(self._state, player), legal)
    return chooser.action(legal)

  def _play(self, player: int, action: int) -> None:
    """Plays an action of a seat, after passing it to the observers in the other seats."""
    observers = [x for seat, x in self._players.items() if seat != player and isinstance(x, Observer)]
    if observers and not self._rules.hides_moves:
      frame, legal = self._rules.frame(self._state, player), self._rules.legal_actions_mask(self._state)
      for observer in observers:
        observe(observer, self._rules.spec, frame, legal, action)
    self._state.apply_action(action)


def _maker(
  rules: Rules, name: str, key: str, allow_code: bool, state: Callable[[], Any]
) -> Callable[[int], "Bot | CustomPlayer"]:
  """Returns a function that maps a seed to a player of one episode. Raises UserError as `PLAYERS.get`."""
  simulations = mcts_simulations(name)
  if simulations is not None:
    mcts(rules, simulations, 0, state, f"{key}={name}")  # raises if the game has hidden information
    return lambda seed: mcts(rules, simulations, seed, state)
  if name == "random":
    return RandomBot
  plugin = plugins.PLAYERS.get(name, key, allow_code)
  return lambda seed: CustomPlayer(plugin, rules.spec, seed, lambda: rules.position(state()))
