"""One seat of a game as an environment of one player; the players in `others` play the other seats.

To the agent, the moves of the other players are part of the environment's randomness. The reward of a step is
what the agent's seat gains until its next decision or the end. The first reward includes gains before the
first decision. A game that ends before the seat's first decision is skipped, and another game starts.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from moozi.core.errors import UserError
from moozi.envs.game import Game
from moozi.envs.players import Seats, bot_of, make_player
from moozi.envs.suites.open_spiel.rules import Rules
from moozi.envs.suites.open_spiel.table import OpenSpielTable

_MAX_TRIES = 1000
_STREAM = 0x5EA7


class SeatGame(Game):
  """A game in which the agent plays one seat.

  Each reset draws the seat if it is not fixed, and one of `others` for each other seat. These draws and the
  game's chance outcomes have separate random streams, both from the environment's seed. With the same seed,
  the first deal is therefore the same whichever seat the agent plays.

  Args:
    seat: the agent's seat; "random" draws one for each episode.
    others: names of players. A name that is listed twice is drawn twice as often.
    key: the option that has the names, for errors.
    allow_code: whether runs in `others` may import the modules that their configurations name.

  Raises: UserError: the game has no such seat, or a player is unknown or cannot play the game.
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
    self._fixed_seat, self._table = seat, OpenSpielTable(rules, None)
    self._seats, self._return = Seats(rules.hides_moves), 0.0
    self._others = [
      make_player(name, rules.spec, f"env.kwargs.{key}[{i}]", allow_code) for i, name in enumerate(others)
    ]
    for name, player in zip(others, self._others, strict=True):
      if bot_of(name) is not None:
        player.check(self._table)  # raises if the bot cannot play the game
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
      f"env.name={self._table.spec.name}: seat {self.seat} has no decision in {_MAX_TRIES} games"
    )

  def step(self, action: int) -> tuple[float, bool, bool]:
    self._seats.observe({0: self._table.view()}, {0: action})
    self._table.step(action)
    self._play_others()
    gained, self._return = self._return, self._table.returns()[self.seat]
    return self._return - gained, self._table.is_over, False

  def frame(self) -> np.ndarray:
    return self._table.frame_of(self.seat)

  def legal_actions_mask(self) -> np.ndarray:
    return self._table.legal_actions_mask()

  def _start(self) -> bool:
    """Starts a game and plays until the seat's first decision; returns whether it has one."""
    random, num_seats, fixed = self._seat_random, self._table.num_seats, self._fixed_seat
    self.seat = int(random.integers(num_seats)) if fixed == "random" else fixed
    drawn = {
      seat: (self._others[random.integers(len(self._others))], int(random.integers(2**31)))
      for seat in range(num_seats)
    }
    del drawn[self.seat]
    self._table.start(self._random)
    self._seats.start({0: (self._table, drawn)})
    self._return = 0.0
    self._play_others()
    return not self._table.is_over

  def _play_others(self) -> None:
    """Plays the other seats until the seat's next decision or the end."""
    while not self._table.is_over and self._table.to_play != self.seat:
      self._seats.play({0: self._table})
