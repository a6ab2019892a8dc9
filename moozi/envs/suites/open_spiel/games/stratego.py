"""Stratego on the boards `small` (6 × 6, 12 pieces a side), `barrage` (10 × 10, 8), `full` (10 × 10, 40).

The players first set up their armies, one cell at a time in turn; neither sees what the other places. Then
they move in turn. A piece moves one cell along a row or a column, to an empty cell or to attack a piece of
the other player. A scout moves any number of cells over empty cells, and may attack at the end of its move.
Bombs and flags do not move, and no piece enters a lake. In an attack the piece of higher rank wins, and
pieces of equal rank are both removed. The spy wins if it attacks the marshal. A bomb beats every attacker
except a miner. The winning attacker moves to the cell of the piece that it has beaten. Both players then know
both pieces. The player who captures the flag wins. A player who cannot move loses; if neither can, the game
is a draw.

Actions and views are from the mover's side: the mover's army is at the bottom, and player 1's board is turned
by 180°. Cells are named `a1` (leftmost in the mover's back row) and so on.

Source: Milton Bradley, Stratego, 1996; Duvall, RLAIT, section 2.4.5; Barrage's army is that of the published
variant. Departures:
  - A piece that survives an attack stays face up, and so does a scout that has moved more than one cell. In
    the original game, the players have to remember both.
  - There is no rule against moving back and forth or against endless chases. After `max_moves` moves of both
    players together, the game is a draw.
  - Player 0 begins. Nobody resigns, and players do not agree on draws.
"""

import dataclasses
import functools
from typing import Any

import numpy as np
import pyspiel

from moozi.envs.suites.open_spiel.games import base

FLAG, SPY, SCOUT, MINER, MARSHAL, BOMB = 0, 1, 2, 3, 10, 11
"""Kinds of pieces; those from 1 to 10 are ranks too."""
MARKS = ("F", "S", "2", "3", "4", "5", "6", "7", "8", "9", "10", "B")
NUM_KINDS = len(MARKS)
EMPTY = NUM_KINDS
"""The action that leaves a cell empty while armies are set up; action k below it places a piece of kind k."""
NUM_SETUP = NUM_KINDS + 1
# The tensor's planes: own pieces by kind, the other's known pieces by kind, the nine planes named here, and
# one plane for each piece of the own and of the other's army, which is 1 if the piece was captured.
_UNKNOWN, _LAKES, _OWN_KNOWN, _OWN_MOVED, _MOVED, _FROM, _TO, _SETUP, _NEXT = range(2 * NUM_KINDS, 33)
_FALLEN = 33


@dataclasses.dataclass(frozen=True)
class StrategoBoard:
  """A board with its armies.

  Attributes:
    size: number of rows and columns.
    rows: number of rows in which each player sets up the army.
    army: for each kind of piece, the number of pieces.
    lakes: cells that no piece enters; the same from both sides.
    max_moves: default of the game's parameter `max_moves`.
  """

  size: int
  rows: int
  army: tuple[int, ...]
  lakes: frozenset[int]
  max_moves: int

  @property
  def num_cells(self) -> int:
    return self.size**2

  @property
  def num_setup(self) -> int:
    """Number of cells on which each player may place a piece."""
    return self.size * self.rows


_LARGE_LAKES = frozenset(10 * row + column for row in (4, 5) for column in (2, 3, 6, 7))
BOARDS = {
  "small": StrategoBoard(6, 2, (1, 1, 3, 2, 0, 0, 1, 0, 0, 1, 1, 2), frozenset({13, 19, 16, 22}), 200),
  "barrage": StrategoBoard(10, 4, (1, 1, 2, 1, 0, 0, 0, 0, 0, 1, 1, 1), _LARGE_LAKES, 500),
  "full": StrategoBoard(10, 4, (1, 1, 8, 5, 4, 4, 4, 3, 2, 1, 1, 6), _LARGE_LAKES, 2000),
}
_DEFAULTS: dict[str, Any] = {"board": "small", "max_moves": 0}
_TYPE = base.game_type("stratego", "Stratego", has_hidden=True, parameters=_DEFAULTS)


class StrategoGame(pyspiel.Game):
  """The game.

  Its parameters are `board` (small, barrage or full) and `max_moves`; 0 takes the board's own: 200, 500 or
  2000.
  """

  def __init__(self, params: dict[str, Any] | None = None) -> None:
    given: dict[str, Any] = _DEFAULTS | (params or {})
    board = BOARDS[base.check_parameter("board", given["board"], tuple(BOARDS))]
    if given["max_moves"] < 0:
      raise pyspiel.SpielError(f"max_moves={given['max_moves']}: must be at least 1, or 0 for the board's")
    num_actions = NUM_SETUP + board.num_cells * 2 * (board.size - 1)
    max_length = 2 * board.num_setup + (given["max_moves"] or board.max_moves)
    super().__init__(_TYPE, base.game_info(num_actions, max_length), params or {})

  @property
  def board(self) -> StrategoBoard:
    return BOARDS[self.get_parameters()["board"]]

  def new_initial_state(self) -> "StrategoState":
    return StrategoState(self)

  def action_names(self) -> list[str]:
    """Returns the names of all actions, which are the same in every state and for both players."""
    return [_action_name(self.board, action) for action in range(self.num_distinct_actions())]

  def make_py_observer(self, iig_obs_type: Any = None, params: Any = None) -> base.Observer:
    size, num_pieces = self.board.size, sum(self.board.army)
    return base.Observer((_FALLEN + 2 * num_pieces, size, size), _write, _describe)


class StrategoState(pyspiel.State):
  """A state of the game. Cells are numbered row by row from player 0's view, whose army is at the bottom.

  Attributes:
    owner, kind: for each cell, the player and the kind of its piece; -1 if there is none.
    known: for each cell, whether its piece is face up.
    moved: for each cell, whether its piece has moved.
    left: for each player and kind, the number of pieces to set up.
    fallen: for each player and kind, the number of pieces that were captured.
    num_set_up: number of cells that the two players together have filled or left empty.
    last: cells (from, to) of the last move; None before the first move.
    num_moves: number of moves after the armies were set up.
  """

  def __init__(self, game: StrategoGame) -> None:
    super().__init__(game)
    parameters = game.get_parameters()
    self._board_name: str = parameters["board"]
    board = self.board
    self._max_moves: int = parameters["max_moves"] or board.max_moves
    self.owner, self.kind = [-1] * board.num_cells, [-1] * board.num_cells
    self.known, self.moved = [False] * board.num_cells, [False] * board.num_cells
    self.left = [list(board.army), list(board.army)]
    self.fallen = [[0] * NUM_KINDS, [0] * NUM_KINDS]
    self.num_set_up, self.num_moves = 0, 0
    self.last: tuple[int, int] | None = None
    self._player, self._is_over, self._winner = 0, False, -1

  @property
  def board(self) -> StrategoBoard:
    return BOARDS[self._board_name]

  @property
  def is_set_up(self) -> bool:
    """Whether both armies are on the board."""
    return self.num_set_up == 2 * self.board.num_setup

  def current_player(self) -> int:
    return pyspiel.PlayerId.TERMINAL if self._is_over else self._player

  def _legal_actions(self, player: int) -> list[int]:
    if self.is_set_up:
      return self._moves(player)
    left, num_cells = self.left[player], self.board.num_setup - self.num_set_up // 2
    kinds = [kind for kind in range(NUM_KINDS) if left[kind]]
    return [*kinds, EMPTY] if num_cells > sum(left) else kinds

  def _moves(self, player: int) -> list[int]:
    """Returns the player's legal moves, sorted."""
    rays, owner, out = _rays(self._board_name, player), self.owner, []
    for cell, kind in enumerate(self.kind):
      if owner[cell] == player and kind not in (FLAG, BOMB):
        for ray in rays[cell]:
          for action, target in ray if kind == SCOUT else ray[:1]:
            if owner[target] != player:
              out.append(action)
            if owner[target] >= 0:
              break
    return sorted(out)

  def _apply_action(self, action: int) -> None:
    if self.is_set_up:
      self._move(action)
      self.num_moves += 1
    else:
      self._set_up(action)
    self._player = 1 - self._player
    if self.is_set_up and not self._is_over:
      self._check_end()

  def _set_up(self, action: int) -> None:
    player = self._player
    if action != EMPTY:
      cell = self.next_cell(player)
      self.owner[cell], self.kind[cell] = player, action
      self.left[player][action] -= 1
    self.num_set_up += 1

  def next_cell(self, player: int) -> int:
    """Returns the cell that the player fills next: from the front row to the back row, each from the left."""
    board = self.board
    own = board.num_cells - board.num_setup + (self.num_set_up - player) // 2
    return own if player == 0 else board.num_cells - 1 - own

  def _move(self, action: int) -> None:
    player = self._player
    start, end = _cells_of(self.board, action, player)
    kind = self.kind[start]
    self.known[start] |= _distance(start, end, self.board.size) > 1
    self.moved[start] = True
    self.last = start, end
    if self.owner[end] < 0:
      self._put(start, end)
      return
    target = self.kind[end]
    self.known[start] = self.known[end] = True
    wins = _wins(kind, target)
    if wins >= 0:
      self._remove(end)
    if wins <= 0:
      self._remove(start)
    else:
      self._put(start, end)
    if target == FLAG:
      self._is_over, self._winner = True, player

  def _put(self, start: int, end: int) -> None:
    self.owner[end], self.kind[end] = self.owner[start], self.kind[start]
    self.known[end], self.moved[end] = self.known[start], self.moved[start]
    self._empty(start)

  def _remove(self, cell: int) -> None:
    self.fallen[self.owner[cell]][self.kind[cell]] += 1
    self._empty(cell)

  def _empty(self, cell: int) -> None:
    self.owner[cell] = self.kind[cell] = -1
    self.known[cell] = self.moved[cell] = False

  def _check_end(self) -> None:
    if not self._moves(self._player):
      self._is_over = True
      self._winner = 1 - self._player if self._moves(1 - self._player) else -1
    elif self.num_moves >= self._max_moves:
      self._is_over = True

  def _action_to_string(self, player: int, action: int) -> str:
    return _action_name(self.board, action)

  def is_terminal(self) -> bool:
    return self._is_over

  def returns(self) -> list[float]:
    if self._winner < 0:
      return [0.0, 0.0]
    return [1.0, -1.0] if self._winner == 0 else [-1.0, 1.0]

  def __str__(self) -> str:
    return "\n".join([_rows(self, 0, shows_all=True), f"move {self.num_moves}, p{self._player} to move"])

  @property
  def next_to_move(self) -> int:
    """The player to move; after the end, the player who would be next."""
    return self._player


def _wins(attacker: int, target: int) -> int:
  """Returns 1 if the attacker wins, -1 if the target wins, 0 if both are removed."""
  if target == BOMB:
    return 1 if attacker == MINER else -1
  if attacker == SPY and target == MARSHAL:
    return 1
  return (attacker > target) - (attacker < target)


def _distance(start: int, end: int, size: int) -> int:
  return abs(start // size - end // size) + abs(start % size - end % size)


def move_action(board: StrategoBoard, start: int, end: int) -> int:
  """Returns the action that moves from one cell to another, both numbered from the mover's view.

  Raises: ValueError: the cells are the same, or not in one row or column.
  """
  size = board.size
  (row, column), (to_row, to_column) = divmod(start, size), divmod(end, size)
  if (row == to_row) == (column == to_column):
    raise ValueError(f"move from cell {start} to cell {end}: must be along a row or a column")
  if row == to_row:
    index = to_column - (to_column > column)
  else:
    index = size - 1 + to_row - (to_row > row)
  return NUM_SETUP + start * 2 * (size - 1) + index


def _own_cells(board: StrategoBoard, action: int) -> tuple[int, int]:
  """Returns the cells (from, to) of a move, numbered from the mover's view."""
  size = board.size
  start, index = divmod(action - NUM_SETUP, 2 * (size - 1))
  row, column = divmod(start, size)
  if index < size - 1:
    return start, row * size + index + (index >= column)
  index -= size - 1
  return start, (index + (index >= row)) * size + column


def _cells_of(board: StrategoBoard, action: int, player: int) -> tuple[int, int]:
  """Returns the cells (from, to) of a move of `player`, numbered from player 0's view."""
  start, end = _own_cells(board, action)
  last = board.num_cells - 1
  return (start, end) if player == 0 else (last - start, last - end)


@functools.cache
def _rays(board_name: str, player: int) -> tuple[tuple[tuple[tuple[int, int], ...], ...], ...]:
  """Returns for each cell four rays to the edge or a lake, with pairs (action, cell) from near to far."""
  board = BOARDS[board_name]
  size, last, out = board.size, board.num_cells - 1, []
  for cell in range(board.num_cells):
    rays = []
    for rows, columns in ((-1, 0), (0, -1), (0, 1), (1, 0)):
      ray, (row, column) = [], divmod(cell, size)
      while 0 <= (row := row + rows) < size and 0 <= (column := column + columns) < size:
        target = row * size + column
        if target in board.lakes:
          break
        own = (cell, target) if player == 0 else (last - cell, last - target)
        ray.append((move_action(board, *own), target))
      rays.append(tuple(ray))
    out.append(tuple(rays))
  return tuple(out)


def _action_name(board: StrategoBoard, action: int) -> str:
  if action < NUM_SETUP:
    return "place nothing" if action == EMPTY else f"place {MARKS[action]}"
  return "-".join(cell_name(board, cell) for cell in _own_cells(board, action))


def cell_name(board: StrategoBoard, cell: int) -> str:
  """Returns the name of a cell in the mover's numbering: `a1` is leftmost in the mover's back row."""
  row, column = divmod(cell, board.size)
  return f"{chr(ord('a') + column)}{board.size - row}"


def _write(tensor: np.ndarray, state: StrategoState, player: int) -> None:
  board = state.board
  planes = tensor.reshape(len(tensor), -1)
  turned = planes if player == 0 else planes[:, ::-1]  # turned[:, c] is cell c from player 0's view
  for cell, owner in enumerate(state.owner):
    if owner == player:
      turned[state.kind[cell], cell] = 1
      turned[_OWN_KNOWN, cell], turned[_OWN_MOVED, cell] = state.known[cell], state.moved[cell]
    elif owner >= 0 and state.is_set_up:
      turned[NUM_KINDS + state.kind[cell] if state.known[cell] else _UNKNOWN, cell] = 1
      turned[_MOVED, cell] = state.moved[cell]
  turned[_LAKES, list(board.lakes)] = 1
  if state.last is not None:
    turned[_FROM, state.last[0]] = turned[_TO, state.last[1]] = 1
  if not state.is_set_up:
    turned[_SETUP] = 1
    if state.next_to_move == player:
      turned[_NEXT, state.next_cell(player)] = 1
  plane = _FALLEN
  for fallen in (state.fallen[player], state.fallen[1 - player]):
    for count, total in zip(fallen, board.army, strict=True):
      turned[plane : plane + count] = 1
      plane += total


def _describe(state: StrategoState, player: int) -> str:
  board, last = state.board, "-"
  if state.last is not None:
    cells = state.last if player == 0 else tuple(board.num_cells - 1 - cell for cell in state.last)
    last = "-".join(cell_name(board, cell) for cell in cells)
  own, other = (
    " ".join(f"{MARKS[kind]}:{n}" for kind, n in enumerate(state.fallen[p]) if n)
    for p in (player, 1 - player)
  )
  known = "".join("01"[state.known[c]] for c, owner in enumerate(state.owner) if owner == player)
  return (
    f"p{player}\n{_rows(state, player)}\nlast {last}; own fallen {own}; other's fallen {other}; "
    f"own known {known}; set up {state.num_set_up}; move {state.num_moves}; p{state.next_to_move} to move"
  )


def _rows(state: StrategoState, player: int, shows_all: bool = False) -> str:
  """Returns the board as text.

  `.` is an empty cell, `~` a lake, `?` an unknown piece that has not moved, and `!` one that has. Known
  pieces of the other player are followed by `'`.
  """
  size, signs = state.board.size, []
  for cell in range(size * size):
    owner = state.owner[cell]
    if cell in state.board.lakes:
      sign = "~"
    elif owner < 0 or (owner != player and not state.is_set_up and not shows_all):
      sign = "."
    elif owner == player:
      sign = MARKS[state.kind[cell]]
    elif shows_all or state.known[cell]:
      sign = f"{MARKS[state.kind[cell]]}'"
    else:
      sign = "!" if state.moved[cell] else "?"
    signs.append(sign.rjust(4))
  if player == 1:
    signs.reverse()
  return "\n".join("".join(signs[i : i + size]) for i in range(0, len(signs), size))


pyspiel.register_game(_TYPE, StrategoGame)
