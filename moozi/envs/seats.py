"""One seat of a game as an environment of one player; the players in `others` play the other seats.

To the agent, the moves of the other players are part of the environment. The reward of a step is what the
agent's seat gains until its next decision or the end. The first reward includes gains before the first
decision. A game that ends before the seat's first decision is skipped, and another game starts.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from moozi.core.config import NonNegativeInt, Section
from moozi.core.errors import UserError
from moozi.envs.game import Game
from moozi.envs.players import Seats, bot_of, check_seat_player, make_player
from moozi.envs.table import Table

_MAX_TRIES = 1000
# Moves of the other seats between two decisions of the agent, at most; more are a mistake in a user's game.
_MAX_OTHER_MOVES = 100_000
_STREAM = 0x5EA7


def _as_list(value: Any) -> Any:
  return (value,) if isinstance(value, str) else value


_SeatPlayer = Annotated[str, AfterValidator(check_seat_player)]
SeatPlayers = Annotated[tuple[_SeatPlayer, ...], BeforeValidator(_as_list), Field(min_length=1)]
OTHERS = (
  "players of the other seats, one name or a list, drawn for each episode and seat: random, mcts:N, "
  "alpha_beta:N, run:PATH[@checkpoint], zoo:NAME, prior:PATH[@checkpoint], approach:NAME, module:function or "
  "a registered name"
)
TEST_OTHERS = "players of the other seats in evaluations; null: as in others"


class SeatOptions(Section):
  """The keys of `env.kwargs` with which the agent plays one seat of a user's `Table`."""

  seat: Literal["random"] | NonNegativeInt = Field(
    "random", description="the agent's seat: random, which draws it for each episode, or a number"
  )
  others: SeatPlayers = Field(("random",), description=OTHERS)
  test_others: SeatPlayers | None = Field(None, description=TEST_OTHERS)


class SeatGame(Game):
  """A game in which the agent plays one seat.

  Each reset draws the seat if it is not fixed, and one of `others` for each other seat. These draws and the
  game's chance outcomes have separate random streams, both from the environment's seed. With the same seed,
  the first deal is therefore the same whichever seat the agent plays.

  Args:
    seat: the agent's seat; "random" draws one for each episode.
    others: names of players. Each entry is drawn equally often.
    key: the key of `env.kwargs` that has `others`; errors name it.
    allow_code: whether runs in `others` may import the modules that their configurations name.

  Raises: UserError: the game has no such seat, or a player is unknown or cannot play the game.
  """

  def __init__(
    self,
    table: Table,
    seat: int | Literal["random"],
    others: Sequence[str],
    key: str = "others",
    allow_code: bool = False,
  ) -> None:
    if seat != "random" and seat >= table.num_seats:
      raise UserError(
        f"env.kwargs.seat={seat}: {table.spec.name} has {table.num_seats} seats; must be random, or from 0 "
        f"to {table.num_seats - 1}"
      )
    self._fixed_seat, self._table = seat, table
    self._seats, self._return = Seats(table.hides_moves), 0.0
    self._others = [
      make_player(name, table.spec, f"env.kwargs.{key}[{i}]", allow_code) for i, name in enumerate(others)
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

  def close(self) -> None:
    self._table.close()

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
    for _ in range(_MAX_OTHER_MOVES):
      if self._table.is_over or self._table.to_play == self.seat:
        return
      self._seats.play({0: self._table})
    raise UserError(
      f"env.name={self._table.spec.name}: seat {self.seat} has no decision in {_MAX_OTHER_MOVES:,} moves of "
      "the other seats, and the game does not end"
    )
