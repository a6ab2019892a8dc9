"""Othello on a board of any even size from 4 × 4 to 26 × 26 cells; open_spiel's own `othello` has only 8 × 8.

The rules, actions and tensors are those of open_spiel's game. Black (player 0) moves first. A move turns over
every straight line of the other player's discs between the new disc and one of the player's own. A player
passes only without such a move. The game ends when neither player can move; the player with more discs wins,
and equal numbers are a draw.

Source: United States Othello Association, The Official Rules of Othello, 2017; tests compare 8 × 8 with the
package's game. Departures: no clocks; no resigning.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyspiel

from moozi.envs.suites.open_spiel.games import base

_SIZES = tuple(range(4, 27, 2))  # the letters of the alphabet name the columns
_TYPE = base.game_type("small_othello", "Othello of any even size", parameters={"size": 6})


class OthelloGame(pyspiel.Game):
  """The game. Its parameter `size` is the number of rows and columns."""

  def __init__(self, params: dict[str, Any] | None = None) -> None:
    num_cells = base.check_parameter("size", (params or {}).get("size", 6), _SIZES) ** 2
    super().__init__(_TYPE, base.game_info(num_cells + 1, 2 * (num_cells - 4)), params or {})

  @property
  def size(self) -> int:
    return int(self.get_parameters()["size"])

  def new_initial_state(self) -> "OthelloState":
    return OthelloState(self)

  def action_names(self) -> list[str]:
    """Returns the names of all actions."""
    return [_action_name(action, self.size) for action in range(self.size**2 + 1)]

  def make_py_observer(self, iig_obs_type: Any = None, params: Any = None) -> base.Observer:
    return base.Observer((3, self.size, self.size), _write, lambda state, player: str(state))


class OthelloState(pyspiel.State):
  """A state; `discs` has for each player the cells with the player's discs, one bit per cell, row by row."""

  def __init__(self, game: OthelloGame) -> None:
    super().__init__(game)
    n = self._size = game.size
    low, high = n // 2 - 1, n // 2
    black = 1 << (n * low + high) | 1 << (n * high + low)
    white = 1 << (n * low + low) | 1 << (n * high + high)
    self.discs = black, white
    self._player = 0
    self._moves = self._find_moves(0)

  def current_player(self) -> int:
    return self._player

  def _legal_actions(self, player: int) -> list[int]:
    return list(_set_bits(self._moves)) if self._moves else [self._size**2]

  def _apply_action(self, action: int) -> None:
    player, other = self._player, 1 - self._player
    if action < self._size**2:
      turned = self._turned(1 << action, player)
      own, others = self.discs[player] | 1 << action | turned, self.discs[other] & ~turned
      self.discs = (own, others) if player == 0 else (others, own)
    self._player, self._moves = other, self._find_moves(other)
    if not self._moves and not self._find_moves(player):
      self._player = pyspiel.PlayerId.TERMINAL

  def _action_to_string(self, player: int, action: int) -> str:
    return _action_name(action, self._size)

  def is_terminal(self) -> bool:
    return self._player == pyspiel.PlayerId.TERMINAL

  def returns(self) -> list[float]:
    black, white = (discs.bit_count() for discs in self.discs)
    gain = float(np.sign(black - white)) if self.is_terminal() else 0.0
    return [gain, -gain]

  def __str__(self) -> str:
    black, white = self.discs
    signs = ["x" if black >> i & 1 else "o" if white >> i & 1 else "-" for i in range(self._size**2)]
    rows = ["".join(signs[i : i + self._size]) for i in range(0, len(signs), self._size)]
    return "\n".join([*rows, "over" if self.is_terminal() else f"{'xo'[self._player]} to move"])

  def _find_moves(self, player: int) -> int:
    """Returns the cells where a disc of `player` would turn over at least one disc."""
    own, other = self.discs[player], self.discs[1 - player]
    empty, out = ~(own | other), 0
    for shift, reach in _directions(self._size):
      line = _shifted(own, shift, reach) & other
      while line:
        line = _shifted(line, shift, reach)
        out |= line & empty
        line &= other
    return out

  def _turned(self, disc: int, player: int) -> int:
    """Returns the discs that a new disc of `player` turns over."""
    own, other, out = self.discs[player], self.discs[1 - player], 0
    for shift, reach in _directions(self._size):
      line, end = 0, _shifted(disc, shift, reach)
      while end & other:
        line |= end
        end = _shifted(end, shift, reach)
      if end & own:
        out |= line
    return out


def _action_name(action: int, size: int) -> str:
  row, column = divmod(action, size)
  return f"{chr(ord('a') + column)}{row + 1}" if row < size else "pass"


@functools.cache
def _directions(size: int) -> tuple[tuple[int, int], ...]:
  """Returns (shift of a disc's bit, mask of the cells that it can reach) for each of 8 directions."""
  columns = [sum(1 << (size * row + column) for row in range(size)) for column in range(size)]
  out, all_cells = [], sum(columns)
  for row, column in itertools.product((-1, 0, 1), repeat=2):
    if row or column:
      # Without the mask, a disc shifted over one edge would appear at the opposite edge.
      out.append((size * row + column, all_cells & ~{-1: columns[-1], 0: 0, 1: columns[0]}[column]))
  return tuple(out)


def _shifted(discs: int, shift: int, reach: int) -> int:
  return (discs << shift if shift > 0 else discs >> -shift) & reach


def _set_bits(bits: int) -> Iterator[int]:
  while bits:
    lowest = bits & -bits
    yield lowest.bit_length() - 1
    bits ^= lowest


def _write(tensor: np.ndarray, state: OthelloState, player: int) -> None:
  own, other = (_bits(state.discs[p], tensor.shape[1]) for p in (player, 1 - player))
  tensor[:] = 1 - own - other, own, other


def _bits(discs: int, size: int) -> np.ndarray:
  data = np.frombuffer(discs.to_bytes(-(-size * size // 8), "little"), np.uint8)
  return np.unpackbits(data, bitorder="little")[: size * size].reshape(size, size).astype(np.float32)


pyspiel.register_game(_TYPE, OthelloGame)
