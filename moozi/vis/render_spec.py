"""Specifies how each environment is drawn: what the planes or vector entries of its frames mean.

An environment that is not listed here is drawn according to its `EnvSpec`.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Int8, Shaped

from moozi.core.spec import EnvSpec

Ground = Literal["cells", "holes", "points", "felt", "chequered", "hexes", "tiles"]


@dataclasses.dataclass(frozen=True)
class Piece:
  """A kind of piece on a board."""

  plane: int
  owner: int | None  # player 0 or 1; if `Board.is_relative`, 0 is the player to move; None for no owner
  mark: str = ""  # letters drawn on the piece; "XO" is X for player 0 and O for player 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Board:
  """How a board is drawn: its ground, its kinds of pieces, and the two players' colors and names.

  The ground is cells; holes (discs in columns); points (stones on the crossings of lines); felt (discs on
  green); chequered; hexes (each row half a cell further right); or tiles (numbers).
  """

  ground: Ground
  pieces: tuple[Piece, ...]
  colors: tuple[tuple[int, int, int], tuple[int, int, int]] = ((20, 20, 20), (245, 245, 245))
  names: tuple[str, str] = ("black", "white")
  is_relative: bool = False  # frames are from the view of the player to move
  # Orientation of the board in player 1's frames, if `is_relative`.
  second_sees: Literal["same", "upside_down", "turned"] = "same"
  row_0_is_below: bool = False
  shape: tuple[int, int] | None = None  # (rows, columns) if the frame is a vector of planes, row by row
  num_planes: int = 1  # of such a vector


@dataclasses.dataclass(frozen=True)
class Fact:
  """A group of a vector's entries, shown as a label and the values whose entries are set."""

  label: str
  values: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenderSpec:
  """How one environment is drawn."""

  kind: Literal["planes", "image", "board", "facts", "vector"]
  names: tuple[str, ...] = ()  # names of the planes or of the vector's entries; empty if unknown
  action_names: tuple[str, ...] = ()  # if not empty, used instead of the environment's own names
  board: Board | None = None
  facts: tuple[Fact, ...] = ()  # groups of the vector's first entries, in order
  is_partial: bool = False  # whether the vector has further entries, which are not shown


def render_spec_of(spec: EnvSpec) -> RenderSpec:
  """Returns the render spec that is listed for the environment.

  If none is listed or it does not fit the frames, returns a render spec that is derived from the `EnvSpec`.
  """
  # These fields are not compared, so equal specs may differ in them.
  return _render_spec(spec, (spec.frame_names, spec.action_places, spec.player_planes, spec.mover_planes))


@functools.lru_cache(maxsize=64)
def _render_spec(spec: EnvSpec, described: tuple[object, ...]) -> RenderSpec:
  library, _, game = spec.name.partition(":")
  # go(board_size=9) becomes go, and CartPole-v1 becomes CartPole.
  game = re.sub(r"-v\d+$", "", game.partition("(")[0])
  names = _plane_names(library, game)
  if names and len(names) == spec.frame_shape[2]:
    return RenderSpec(kind="planes", names=names)
  render_spec = _RENDER_SPECS.get((library, game))
  if render_spec is not None and _fits(render_spec, spec):
    if render_spec.board is not None and re.search(r"egocentric\w*=true", spec.name, re.IGNORECASE):
      return dataclasses.replace(render_spec, board=dataclasses.replace(render_spec.board, is_relative=True))
    return render_spec
  height, width, channels = spec.frame_shape
  if height == width == 1 and channels > 1:
    return RenderSpec(kind="vector", names=spec.frame_names)
  # An image may have places too, such as one plane with 1 and -1, or a picture in RGB.
  has_planes = spec.frame_dtype == "bool" or channels not in (1, 3)
  if spec.planes_of_players != ((), ()) or (spec.num_places and has_planes):
    return RenderSpec(kind="board", board=_board_of_planes(spec))
  is_image = spec.frame_dtype == "uint8" or (spec.frame_dtype == "float32" and channels in (1, 3))
  return RenderSpec(kind="image" if is_image else "planes", names=spec.frame_names)


def _board_of_planes(spec: EnvSpec) -> Board:
  """Returns the board of a game that is not listed: the pieces are those of the planes that the spec names.

  If no player has several planes, the pieces are X and O, or discs if actions are columns. Otherwise a piece
  has a sign of its plane's name (`signs_of`). Other planes are pieces of neither player: those with a name,
  or all if no plane belongs to a player.
  """
  players, in_columns = spec.planes_of_players, spec.action_places == "columns"
  names = spec.frame_names or ("",) * spec.frame_shape[2]
  has_letters = max(map(len, players)) > 1
  pieces = [
    Piece(plane, owner, mark if has_letters else "" if in_columns else "XO")
    for owner, planes in enumerate(players)
    for plane, mark in zip(planes, signs_of([names[plane] for plane in planes]), strict=True)
  ]
  owned = {piece.plane for piece in pieces} | {*(spec.player_planes or ())[2:]}
  others = [i for i, name in enumerate(names) if i not in owned and (name or not pieces)]
  marks = signs_of([names[i] for i in others], {letter for piece in pieces for letter in piece.mark})
  has_marks = len(pieces) + len(others) > 1
  pieces += [Piece(i, None, mark if has_marks else "") for i, mark in zip(others, marks, strict=True)]
  colors, colored = (
    (_RED_AND_YELLOW, ("red", "yellow")) if in_columns else (_ORANGE_AND_BLUE, ("orange", "blue"))
  )
  is_owned, is_marked = players != ((), ()), not (has_letters or in_columns)
  return Board(
    ground="holes" if in_columns else "cells",
    pieces=tuple(pieces),
    colors=colors,
    names=("player 0", "player 1") if not is_owned else ("X", "O") if is_marked else colored,
    is_relative=spec.mover_planes is not None,
  )


def signs_of(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
  """Returns one sign for each name: its first letter that is free, else the index of the name.

  A letter is free if no earlier name has it as its sign and it is not in `taken`. Letters are in upper case.
  """
  out: list[str] = []
  for i, name in enumerate(names):
    letters = (x.upper() for x in name if x.isalpha())
    out.append(next((x for x in letters if x not in out and x not in taken), str(i)))
  return out


def player_name(spec: EnvSpec, player: int) -> str:
  """Returns a player's name on the board, such as `black`; without a board, `player 0` or `player 1`."""
  board = render_spec_of(spec).board
  return f"player {player}" if board is None else board.names[player]


def mover_text(spec: EnvSpec, player: int, seat: int | None) -> str:
  """Returns text that names the player to move and, if the agent's `seat` is given, says who plays it."""
  who = "" if seat is None else " (agent)" if player == seat else " (opponent)"
  return f"{player_name(spec, player)} to move{who}"


def board_of(
  frame: Shaped[np.ndarray, "H W C"], board: Board, to_play: int
) -> Int8[np.ndarray, "rows columns"]:
  """Reads the pieces on a board from a frame, in the same orientation for both players.

  Returns: for each cell, the index of its piece in `board.pieces`, -1 if the cell is empty. Row 0 is on top.
  """
  planes = np.asarray(frame) > 0.5
  if board.shape is not None:
    size = math.prod(board.shape)
    planes = np.moveaxis(planes.reshape(-1)[: planes.size // size * size].reshape(-1, *board.shape), 0, -1)
  cells = np.full(planes.shape[:2], -1, np.int8)
  for i, piece in enumerate(board.pieces):
    cells[planes[..., piece.plane] & (cells < 0)] = i
  if board.is_relative and to_play == 1:
    if board.second_sees == "upside_down":
      cells = cells[::-1]
    elif board.second_sees == "turned":
      cells = cells[::-1, ::-1]
  return cells[::-1] if board.row_0_is_below else cells


def view_of(frame: Shaped[np.ndarray, "H W C"], spec: EnvSpec, to_play: int) -> int:
  """Returns the player whose view a frame is: `to_play`, or the agent's seat, as shown in the frame."""
  if not spec.num_seats:
    return to_play
  seat = np.asarray(frame)[0, 0, -max(1, spec.num_seats * (spec.num_seats > 2)) :]
  return int(seat[0] > 0) if spec.num_seats == 2 else int(seat.argmax())


def owner_of(piece: Piece, board: Board, to_play: int) -> int | None:
  """Returns the player who owns a piece, or None. `to_play` is the player to move in the frame."""
  return 1 - piece.owner if piece.owner is not None and board.is_relative and to_play == 1 else piece.owner


def mark_of(piece: Piece, owner: int | None) -> str:
  """Returns the letters that are drawn on a piece of `owner`, or ""."""
  return "XO"[owner] if piece.mark == "XO" and owner is not None else piece.mark


def _fits(render_spec: RenderSpec, spec: EnvSpec) -> bool:
  """Returns whether a render spec fits the frames, which an option or a newer package may have changed."""
  height, width, channels = spec.frame_shape
  # Entries that say who moves, or which seat it is, may follow.
  max_rest = max(1, spec.num_seats)
  if render_spec.kind == "facts":
    rest = channels - sum(len(fact.values) for fact in render_spec.facts)
    return height == width == 1 and rest >= 0 and (render_spec.is_partial or rest <= max_rest)
  if render_spec.kind == "vector":
    return height == width == 1 and len(render_spec.names) in (0, channels)
  board = render_spec.board
  if board is None:
    return True
  if board.shape is None:
    return height > 1 and channels > max(p.plane for p in board.pieces)
  return 0 <= channels - board.num_planes * math.prod(board.shape) <= max_rest


_MINATAR = {
  "asterix": "player, enemy, trail, gold",
  "breakout": "paddle, ball, trail, brick",
  "freeway": "chicken, car, speed 1, speed 2, speed 3, speed 4, speed 5",
  "seaquest": ("sub front, sub back, bullet, trail, enemy bullet, fish, enemy sub, oxygen, rescued, diver"),
  "space_invaders": "cannon, alien, moves left, moves right, bullet, enemy bullet",
}


def _split(text: str) -> tuple[str, ...]:
  return tuple(text.split(", ")) if text else ()


def _plane_names(library: str, game: str) -> tuple[str, ...]:
  if library == "tiny":
    return {"catch": ("ball", "paddle"), "corridor": ("walker",)}.get(game, ())
  key = {
    "minatar": game,
    "pgx": game.removeprefix("minatar-"),
    "gymnax": re.sub(r"(?<!^)(?=[A-Z])", "_", game.removesuffix("-MinAtar")).lower(),
  }.get(library, "")
  return _split(_MINATAR.get(key, ""))


_ORANGE_AND_BLUE = ((230, 159, 0), (86, 180, 233))
_RED_AND_YELLOW = ((213, 94, 0), (240, 228, 66))
_MARKS = {"colors": _ORANGE_AND_BLUE, "names": ("X", "O")}
_STONES = (Piece(0, 0), Piece(1, 1))
_SHOGI_LETTERS = ("P", "L", "N", "S", "B", "R", "G", "K", "+P", "+L", "+N", "+S", "+B", "+R")


def _board(ground: Ground, *pieces: Piece, **kwargs: object) -> RenderSpec:
  return RenderSpec(kind="board", board=Board(ground=ground, pieces=pieces, **kwargs))  # type: ignore[arg-type]


def _place(rows: int, columns: int, *action_names: str) -> RenderSpec:
  """Returns the render spec of a one-hot vector with one entry per cell of a grid."""
  board = Board(ground="cells", pieces=(Piece(0, None),), shape=(rows, columns))
  return RenderSpec(kind="board", board=board, action_names=action_names)


def _sides(letters: str | tuple[str, ...], second: int) -> tuple[Piece, ...]:
  """Returns the first player's pieces, from plane 0 on, and the second player's, from plane `second` on."""
  return tuple(
    Piece(start + i, owner, x) for owner, start in ((0, 0), (1, second)) for i, x in enumerate(letters)
  )


def _vector(names: str, action_names: str) -> RenderSpec:
  return RenderSpec(kind="vector", names=_split(names), action_names=_split(action_names))


def _numbered(label: str, count: int) -> Fact:
  return Fact(label, tuple(map(str, range(count))))


_CARD = Fact("card", ("J", "Q", "K"))
_SIX_CARDS = ("J", "J", "Q", "Q", "K", "K")
_UNO_CARDS = tuple(f"{color}{rank}" for color in "RYGB" for rank in range(10))
_UNO_HANDS = tuple(f"{name} cards" for name in ("own", "next player's", "second next's", "third next's"))
_UNO_PLAYERS = ("self", "next", "second next", "third next")
_UNO_FACTS = (
  Fact("top", _UNO_CARDS),
  Fact("hand", tuple(card for card in _UNO_CARDS for _ in range(2))),
  *(Fact(label, (*map(str, range(20)), "20 or more")) for label in _UNO_HANDS),
  Fact("drew last", _UNO_PLAYERS),
  Fact("to move", _UNO_PLAYERS),
)
_STRATEGO = ("F", "S", "2", "3", "4", "5", "6", "7", "8", "9", "10", "B")
_WHITE_FIRST = {"colors": ((245, 245, 245), (20, 20, 20)), "names": ("white", "black")}
_RENDER_SPECS: dict[tuple[str, str], RenderSpec] = {
  ("open_spiel", "tic_tac_toe"): _board("cells", Piece(2, 0, "XO"), Piece(1, 1, "XO"), **_MARKS),
  ("open_spiel", "gomoku"): _board("points", *_STONES, shape=(15, 15), num_planes=3),
  ("open_spiel", "connect_four"): _board(
    "holes", *_STONES, row_0_is_below=True, colors=_RED_AND_YELLOW, names=("red", "yellow")
  ),
  # Random play never places a disc on the four cells in the middle, so their names are listed here.
  ("open_spiel", "othello"): dataclasses.replace(
    _board("felt", Piece(1, 0), Piece(2, 1), is_relative=True),
    action_names=(*(f"{column}{row}" for row in range(1, 9) for column in "abcdefgh"), "pass"),
  ),
  ("open_spiel", "go"): _board("points", *_STONES, row_0_is_below=True),
  ("open_spiel", "breakthrough"): _board("chequered", *_STONES),
  ("open_spiel", "clobber"): _board("chequered", *_STONES, is_relative=True, **_WHITE_FIRST),
  ("open_spiel", "lines_of_action"): _board("chequered", *_STONES, row_0_is_below=True),
  ("open_spiel", "pentago"): _board("cells", *_STONES, is_relative=True, **_WHITE_FIRST),
  ("open_spiel", "hex"): _board(
    "hexes", *(Piece(i, 0) for i in (5, 6, 7, 8)), *(Piece(i, 1) for i in range(4))
  ),
  # The planes are pairs of kings, queens, rooks, bishops, knights and pawns, white first. White is player 1.
  ("open_spiel", "chess"): _board(
    "chequered",
    *(Piece(2 * i + j, 1 - j, x) for i, x in enumerate("KQRBNP") for j in (0, 1)),
    row_0_is_below=True,
  ),
  ("open_spiel", "kuhn_poker"): RenderSpec(
    kind="facts",
    facts=(Fact("player", ("0", "1")), _CARD, *(Fact(f"move {i}", ("pass", "bet")) for i in (1, 2, 3))),
  ),
  ("open_spiel", "leduc_poker"): RenderSpec(
    kind="facts",
    facts=(
      Fact("player", ("0", "1")),
      Fact("card", _SIX_CARDS),
      Fact("open card", _SIX_CARDS),
      *(Fact(f"round {i}, move {j}", ("call", "raise")) for i in (1, 2) for j in (1, 2, 3, 4)),
    ),
  ),
  ("open_spiel", "simplest"): RenderSpec(
    kind="facts", facts=tuple(Fact(f"player {i} played", ("1", "2", "3", "4")) for i in (0, 1))
  ),
  ("open_spiel", "uno"): RenderSpec(kind="facts", facts=_UNO_FACTS, is_partial=True),
  # A frame is from the mover's side, and so are the names of the actions.
  ("open_spiel", "stratego"): _board(
    "cells",
    *(Piece(i, 0, mark) for i, mark in enumerate(_STRATEGO)),
    *(Piece(12 + i, 1, mark) for i, mark in enumerate(_STRATEGO)),
    Piece(24, 1, "?"),
    Piece(25, None, "~"),
    is_relative=True,
    colors=((213, 94, 0), (0, 114, 178)),
    names=("red", "blue"),
  ),
  ("open_spiel", "catch"): _place(10, 5),
  ("open_spiel", "deep_sea"): _place(5, 5),
  ("open_spiel", "cliff_walking"): _place(4, 8),
  ("pgx", "tic_tac_toe"): _board("cells", Piece(0, 0, "XO"), Piece(1, 1, "XO"), is_relative=True, **_MARKS),
  ("pgx", "connect_four"): _board(
    "holes", *_STONES, is_relative=True, colors=_RED_AND_YELLOW, names=("red", "yellow")
  ),
  ("pgx", "othello"): _board("felt", *_STONES, is_relative=True),
  ("pgx", "go_9x9"): _board("points", *_STONES, is_relative=True),
  ("pgx", "hex"): _board("hexes", *_STONES, is_relative=True),
  # Plane 0 has the empty cells; each plane i above 0 has the tiles 2^i.
  ("pgx", "2048"): _board("tiles", *(Piece(i, None, str(2**i)) for i in range(1, 31))),
  ("pgx", "chess"): _board(
    "chequered", *_sides("PNBRQK", 6), is_relative=True, second_sees="upside_down", **_WHITE_FIRST
  ),
  # Chick, elephant, giraffe, lion, hen.
  ("pgx", "animal_shogi"): _board("cells", *_sides("CEGLH", 5), is_relative=True, second_sees="turned"),
  ("pgx", "shogi"): _board("cells", *_sides(_SHOGI_LETTERS, 14), is_relative=True, second_sees="turned"),
  ("pgx", "kuhn_poker"): RenderSpec(
    kind="facts", facts=(_CARD, Fact("own chips", ("0", "1")), Fact("other's chips", ("0", "1")))
  ),
  ("gymnasium", "Blackjack"): RenderSpec(
    kind="facts",
    facts=(_numbered("sum", 32), _numbered("dealer shows", 11), Fact("usable ace", ("no", "yes"))),
    action_names=("stick", "hit"),
  ),
  ("gymnasium", "FrozenLake"): _place(4, 4, "left", "down", "right", "up"),
  ("gymnasium", "FrozenLake8x8"): _place(8, 8, "left", "down", "right", "up"),
  ("gymnasium", "CliffWalking"): _place(4, 12, "up", "right", "down", "left"),
  ("gymnasium", "Taxi"): _vector("", "south, north, east, west, pick up, drop off"),
  ("gymnasium", "LunarLander"): _vector(
    "x, y, x speed, y speed, angle, spin, left leg, right leg", "none, left engine, main engine, right engine"
  ),
  ("gymnasium", "LunarLanderContinuous"): _vector(
    "x, y, x speed, y speed, angle, spin, left leg, right leg", ""
  ),
  ("gymnax", "FourRooms-misc"): _vector("row, column, goal row, goal column", ""),
}
for _library in ("gymnasium", "gymnax"):
  _RENDER_SPECS |= {
    (_library, "CartPole"): _vector("position, speed, angle, spin", "left, right"),
    (_library, "MountainCar"): _vector("position, speed", "left, none, right"),
    (_library, "MountainCarContinuous"): _vector("position, speed", ""),
    (_library, "Pendulum"): _vector("cos, sin, speed", ""),
    (_library, "Acrobot"): _vector("cos 1, sin 1, cos 2, sin 2, speed 1, speed 2", "back, none, forth"),
  }
for _library, _game, _same in (
  ("gymnasium", "CliffWalkingSlippery", "CliffWalking"),
  ("open_spiel", "mnk", "tic_tac_toe"),
  ("open_spiel", "small_othello", "othello"),
  ("pgx", "go_19x19", "go_9x9"),
  ("pgx", "gardner_chess", "chess"),
):
  _RENDER_SPECS[_library, _game] = _RENDER_SPECS[_library, _same]
