"""An exact solver of Connect Four on boards of up to 54 bits (7 × 6 by default), compiled by numba.

Positions are two bitboards, and the search is alpha-beta with a transposition table, null windows and moves
ordered by the threats that they make. Source: Pascal Pons, "Solving Connect 4: how to build a perfect AI"
(http://blog.gamesolver.org). Departures: none in the search; a table of about 2^22 entries, and no opening
book.
"""

import numpy as np
from numba import njit

_TABLE_SIZE = (1 << 22) + 15  # odd, so that it shares no factor with the keys' step between columns
_MAX_BITS = 54  # the key of a position and the 8 bits of its bound share a signed 64-bit integer


class Solver:
  """Solves positions. A position is the list of the columns played so far, numbered from 0.

  A score is for the player to move. On a board of S squares with n stones, a win with the player's next stone
  has the score (S + 1 - n) // 2, and each further own stone lowers it by 1. A draw has 0, and a loss the
  negated score of the other player's win. A higher score is therefore a faster win or a slower loss.

  Raises: ValueError: the board is too small or too large.
  """

  def __init__(self, width: int = 7, height: int = 6) -> None:
    if width < 4 or height < 4 or width * (height + 1) > _MAX_BITS:
      raise ValueError(f"{width} × {height}: must be at least 4 × 4, with width × (height + 1) ≤ {_MAX_BITS}")
    self.width, self.height = width, height
    bottom = sum(1 << column * (height + 1) for column in range(width))
    self._shape = (width, height, bottom, bottom * ((1 << height) - 1))
    self._table = np.zeros(_TABLE_SIZE, np.int64)

  def score(self, moves: list[int]) -> int:
    """Returns the score of the position. Raises ValueError if a move is illegal, or the game is over."""
    own, mask = self._position(moves)
    return int(_solve(own, mask, len(moves), self._table, self._shape))

  def values(self, moves: list[int]) -> list[int | None]:
    """Returns the score after a stone in each column, for the player to move now; None for a full column.

    The errors are those of `score`. On a full board, every value is None.
    """
    own, mask = self._position(moves)
    out: list[int | None] = []
    for column in range(self.width):
      move = (mask + (1 << column * (self.height + 1))) & _column(column, self.height)
      if not move:
        out.append(None)
      elif _winning(own, mask, self._shape) & move:
        out.append((self.width * self.height + 1 - len(moves)) // 2)
      else:
        score = _solve(own ^ mask, mask | move, len(moves) + 1, self._table, self._shape)
        out.append(-int(score))
    return out

  def immediate_wins(self, moves: list[int]) -> list[int]:
    """Returns the columns with which the player to move wins at once."""
    own, mask = self._position(moves)
    return self._columns(_winning(own, mask, self._shape), mask)

  def threats(self, moves: list[int]) -> list[int]:
    """Returns the columns with which the other player would win at once if it were to move."""
    own, mask = self._position(moves)
    return self._columns(_winning(own ^ mask, mask, self._shape), mask)

  def _columns(self, squares: int, mask: int) -> list[int]:
    possible = squares & (mask + self._shape[2])
    return [column for column in range(self.width) if possible & _column(column, self.height)]

  def _position(self, moves: list[int]) -> tuple[int, int]:
    """Returns the bitboards (stones of the player to move, all stones)."""
    own = mask = 0
    for i, column in enumerate(moves):
      move = (mask + (1 << column * (self.height + 1))) & _column(column, self.height) if column >= 0 else 0
      if column >= self.width or not move:
        raise ValueError(f"moves={moves}: move {i} is illegal")
      if _winning(own, mask, self._shape) & move and i + 1 < len(moves):
        raise ValueError(f"moves={moves}: the game is over after move {i}")
      own, mask = own ^ mask, mask | move
      if i + 1 == len(moves) and _has_four(own ^ mask, self.height):
        raise ValueError(f"moves={moves}: the game is over")
    return own, mask


def _column(column: int, height: int) -> int:
  return ((1 << height) - 1) << column * (height + 1)


def _has_four(stones: int, height: int) -> bool:
  for step in (1, height, height + 1, height + 2):
    pairs = stones & stones >> step
    if pairs & pairs >> 2 * step:
      return True
  return False


# Every bitboard is a signed 64-bit integer, since numba turns mixed signs into floats. The board's mask
# clears the bits that a shift moves off the board. `shape` is (width, height, bottom row, board).


@njit(cache=True)
def _winning(stones, mask, shape):  # type: ignore[no-untyped-def]
  """Returns the empty squares, reachable or not, that complete four of `stones`."""
  height = shape[1]
  found = (stones << 1) & (stones << 2) & (stones << 3)
  for step in (height, height + 1, height + 2):
    pair = (stones << step) & (stones << 2 * step)
    found |= pair & (stones << 3 * step)
    found |= pair & (stones >> step)
    pair = (stones >> step) & (stones >> 2 * step)
    found |= pair & (stones << step)
    found |= pair & (stones >> 3 * step)
  return found & (shape[3] ^ mask)


@njit(cache=True)
def _safe_moves(own, mask, shape):  # type: ignore[no-untyped-def]
  """Returns the moves after which the opponent cannot win at once."""
  possible = (mask + shape[2]) & shape[3]
  threats = _winning(own ^ mask, mask, shape)
  forced = possible & threats
  if forced:
    if forced & (forced - 1):
      return np.int64(0)
    possible = forced
  return possible & ~(threats >> 1)


@njit(cache=True)
def _count(bits):  # type: ignore[no-untyped-def]
  out = 0
  while bits:
    bits &= bits - 1
    out += 1
  return out


@njit("int64(int64, int64, int64, int64, int64, int64[::1], UniTuple(int64, 4))", cache=True)
def _negamax(own, mask, count, alpha, beta, table, shape):  # type: ignore[no-untyped-def]
  """Returns the score if it is between alpha and beta, else a bound on it.

  `count` stones are on the board, and the player to move has no immediate win.
  """
  width, height = shape[0], shape[1]
  size = width * height
  lowest, highest = -(size // 2) + 3, (size + 1) // 2 - 3
  possible = _safe_moves(own, mask, shape)
  if possible == 0:
    return -((size - count) // 2)
  if count >= size - 2:
    return np.int64(0)
  low = -((size - 2 - count) // 2)
  if alpha < low:
    alpha = low
    if alpha >= beta:
      return alpha
  high = (size - 1 - count) // 2
  key = own + mask
  place = key % len(table)
  entry = table[place]
  if entry and entry >> 8 == key:  # the key of the empty board is 0, as an unused entry is
    bound = entry & 255
    if bound > highest - lowest + 1:
      low = bound + 2 * lowest - highest - 2
      if alpha < low:
        alpha = low
        if alpha >= beta:
          return alpha
    else:
      high = bound + lowest - 1
  if beta > high:
    beta = high
    if alpha >= beta:
      return beta
  # Moves from the middle outwards, sorted by the number of winning squares that they make (insertion sort).
  moves, scores, number = np.empty(16, np.int64), np.empty(16, np.int64), 0
  for i in range(width):
    column = width // 2 + (1 - 2 * (i % 2)) * (i + 1) // 2
    move = possible & (((np.int64(1) << height) - 1) << column * (height + 1))
    if move:
      score = _count(_winning(own | move, mask, shape))
      at = number
      while at > 0 and scores[at - 1] < score:
        moves[at], scores[at] = moves[at - 1], scores[at - 1]
        at -= 1
      moves[at], scores[at] = move, score
      number += 1
  for i in range(number):
    score = -_negamax(own ^ mask, mask | moves[i], count + 1, -beta, -alpha, table, shape)
    if score >= beta:
      table[place] = key << 8 | (score + highest - 2 * lowest + 2)
      return score
    if score > alpha:
      alpha = score
  table[place] = key << 8 | (alpha - lowest + 1)
  return alpha


@njit("int64(int64, int64, int64, int64[::1], UniTuple(int64, 4))", cache=True)
def _solve(own, mask, count, table, shape):  # type: ignore[no-untyped-def]
  """Returns the score by a bisection with null windows that tries the scores around 0 first."""
  size = shape[0] * shape[1]
  if count == size:
    return np.int64(0)
  if _winning(own, mask, shape) & (mask + shape[2]):
    return (size + 1 - count) // 2
  low, high = -((size - count) // 2), (size + 1 - count) // 2
  while low < high:
    middle = low + (high - low) // 2
    if middle <= 0 and -(-low // 2) < middle:
      middle = -(-low // 2)
    elif middle >= 0 and high // 2 > middle:
      middle = high // 2
    score = _negamax(own, mask, count, middle, middle + 1, table, shape)
    if score <= middle:
      high = score
    else:
      low = score
  return low
