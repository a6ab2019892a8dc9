"""How each environment is drawn: what its planes and entries stand for. Presentation alone; rules are in
envs/.

An environment that is not listed is drawn by the shape of its frames.

Source: what the planes mean was read off each package by playing in it (tests/vis/test_render_spec.py does it
again).
"""

import dataclasses
import functools
import re
from typing import Literal

import numpy as np

from moozi.core.spec import DUMMY_ACTION, EnvSpec

Ground = Literal["cells", "holes", "points", "felt", "chequered", "hexes", "tiles"]


@dataclasses.dataclass(frozen=True)
class Piece:
  """What one plane holds on a board.

  Attributes:
    plane: its index.
    owner: 0 or 1; in frames from the mover's view 0 is the mover; None belongs to nobody.
    mark: letters drawn on it; "XO" is the owner's own of the two.
  """

  plane: int
  owner: int | None
  mark: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Board:
  """A board and its pieces.

  Attributes:
    ground: cells; holes (discs in columns); points (stones where lines cross); felt (discs on green);
      chequered; hexes (each row half a cell further right); tiles (numbers).
    pieces: by plane.
    colours: the two players' pieces, RGB.
    names: what the two players are called.
    is_relative: frames are from the view of the player to move.
    second_sees: what the frame is to player 1 in relation to the board: the same, upside down, or turned
      by half a circle.
    row_0_is_below: the frame's first row is the board's lowest.
    shape: (rows, columns) where the frame is a vector of planes, row by row.
  """

  ground: Ground
  pieces: tuple[Piece, ...]
  colours: tuple[tuple[int, int, int], tuple[int, int, int]] = ((20, 20, 20), (245, 245, 245))
  names: tuple[str, str] = ("black", "white")
  is_relative: bool = False
  second_sees: Literal["same", "upside_down", "turned"] = "same"
  row_0_is_below: bool = False
  shape: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Fact:
  """Some entries of a vector of which one is set: `label: value`."""

  label: str
  values: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenderSpec:
  """How one environment is drawn.

  Attributes:
    kind: planes and images by cell and pixel; a board; facts in words; a vector, entry by entry.
    names: of the planes, or of the vector's entries; empty where they are not known.
    action_names: better ones than the environment's own; empty where there are none.
    board: of kind board.
    facts: of kind facts; they cover the vector's first entries.
  """

  kind: Literal["planes", "image", "board", "facts", "vector"]
  names: tuple[str, ...] = ()
  action_names: tuple[str, ...] = ()
  board: Board | None = None
  facts: tuple[Fact, ...] = ()


@functools.lru_cache(maxsize=64)
def render_spec_of(spec: EnvSpec) -> RenderSpec:
  """How the environment of `spec` is drawn: by its name where it is listed and the frames fit, else by
  shape.
  """
  library, _, game = spec.name.partition(":")
  # go(board_size=9) is go, CartPole-v1 is CartPole.
  game = re.sub(r"-v\d+$", "", game.partition("(")[0])
  names = _plane_names(library, game)
  if names and len(names) == spec.frame_shape[2]:
    return RenderSpec(kind="planes", names=names)
  look = _RENDER_SPECS.get((library, game))
  if look is not None and _fits(look, spec):
    return look
  height, width, channels = spec.frame_shape
  if height == width == 1 and channels > 1:
    return RenderSpec(kind="vector")
  is_image = spec.frame_dtype == "uint8" or (spec.frame_dtype == "float32" and channels in (1, 3))
  return RenderSpec(kind="image" if is_image else "planes")


def action_name(spec: EnvSpec, action: int) -> str:
  """An action of the agent's in words; the dummy is "dummy"."""
  if action == DUMMY_ACTION:
    return "dummy"
  names = _own_action_names(spec)
  return names[action - 1] if action <= len(names) else f"action {action - 1}"


def action_names(spec: EnvSpec) -> tuple[str, ...]:
  """All of the agent's actions in words, as `action_name` has them, the dummy first."""
  names = _own_action_names(spec)
  numbers = range(len(names), spec.num_env_actions)
  return ("dummy", *names[: spec.num_env_actions], *(f"action {i}" for i in numbers))


def _own_action_names(spec: EnvSpec) -> tuple[str, ...]:
  """What the environment's actions are called, the first ones at least."""
  names = render_spec_of(spec).action_names
  return names if len(names) == spec.num_env_actions else spec.action_names


def player_name(spec: EnvSpec, player: int) -> str:
  """What a player is called on the board; `player 0` where boards give no name."""
  board = render_spec_of(spec).board
  return f"player {player}" if board is None else board.names[player]


def board_of(frame: np.ndarray, board: Board, to_play: int) -> np.ndarray:
  """The board as it lies before a spectator, first row on top, whoever is to move.

  Args:
    frame: [H, W, C], bool or float32.
    board: what its planes are.
    to_play: the player from whose view the frame is, where it is from one.

  Returns: [rows, columns] int8: -1 where there is nothing, else the index of the piece; pieces that the frame
    shows from the mover's view are to be coloured by `owner_of`.
  """
  planes = np.asarray(frame) > 0.5
  if board.shape is not None:
    rows, columns = board.shape
    size = rows * columns
    num_planes = planes.size // size
    planes = np.moveaxis(planes.reshape(-1)[: num_planes * size].reshape(num_planes, rows, columns), 0, -1)
  cells = np.full(planes.shape[:2], -1, np.int8)
  for i, piece in enumerate(board.pieces):
    cells[planes[..., piece.plane] & (cells < 0)] = i
  if board.is_relative and to_play == 1:
    if board.second_sees == "upside_down":
      cells = cells[::-1]
    elif board.second_sees == "turned":
      cells = cells[::-1, ::-1]
  return cells[::-1] if board.row_0_is_below else cells


def owner_of(piece: Piece, board: Board, to_play: int) -> int | None:
  """The player whose piece it is; None belongs to nobody."""
  return 1 - piece.owner if piece.owner is not None and board.is_relative and to_play == 1 else piece.owner


def mark_of(piece: Piece, owner: int | None) -> str:
  """What is written on a piece; "" where nothing is."""
  return "XO"[owner] if piece.mark == "XO" and owner is not None else piece.mark


def _fits(look: RenderSpec, spec: EnvSpec) -> bool:
  """Whether the frames have what the look reads: an option or a newer package may show another thing."""
  height, width, channels = spec.frame_shape
  if look.kind == "facts":
    return height == width == 1 and channels >= sum(len(fact.values) for fact in look.facts)
  if look.kind == "vector":
    return height == width == 1 and len(look.names) in (0, channels)
  if look.board is not None:
    if look.board.shape is None:
      return height > 1 and channels > max(p.plane for p in look.board.pieces)
    size = look.board.shape[0] * look.board.shape[1]
    return channels // size > max(p.plane for p in look.board.pieces)
  return True


_MINATAR = {
  "asterix": ("player", "enemy", "trail", "gold"),
  "breakout": ("paddle", "ball", "trail", "brick"),
  "freeway": ("chicken", "car", "speed 1", "speed 2", "speed 3", "speed 4", "speed 5"),
  "seaquest": (
    "sub front",
    "sub back",
    "bullet",
    "trail",
    "enemy bullet",
    "fish",
    "enemy sub",
    "oxygen",
    "rescued",
    "diver",
  ),
  "space_invaders": ("cannon", "alien", "moves left", "moves right", "bullet", "enemy bullet"),
}


def _plane_names(library: str, game: str) -> tuple[str, ...]:
  if library == "tiny":
    return {"catch": ("ball", "paddle"), "corridor": ("walker",)}.get(game, ())
  key = {
    "minatar": game,
    "pgx": game.removeprefix("minatar-"),
    "gymnax": re.sub(r"(?<!^)(?=[A-Z])", "_", game.removesuffix("-MinAtar")).lower(),
  }.get(library, "")
  return _MINATAR.get(key, ())


_ORANGE_AND_BLUE = ((230, 159, 0), (86, 180, 233))
_RED_AND_YELLOW = ((213, 94, 0), (240, 228, 66))
_MARKS = {"colours": _ORANGE_AND_BLUE, "names": ("X", "O")}
_STONES = (Piece(0, 0), Piece(1, 1))
_CHESS_LETTERS = "PNBRQK"
_SHOGI_LETTERS = ("P", "L", "N", "S", "B", "R", "G", "K", "+P", "+L", "+N", "+S", "+B", "+R")


def _board(ground: Ground, *pieces: Piece, **kwargs: object) -> RenderSpec:
  return RenderSpec(kind="board", board=Board(ground=ground, pieces=pieces, **kwargs))  # type: ignore[arg-type]


def _place(rows: int, columns: int, *action_names: str) -> RenderSpec:
  """A vector with one entry for each place of a grid, and one of them set."""
  board = Board(ground="cells", pieces=(Piece(0, None),), shape=(rows, columns))
  return RenderSpec(kind="board", board=board, action_names=action_names)


def _sides(letters: str | tuple[str, ...], second: int) -> tuple[Piece, ...]:
  """The first player's pieces from plane 0 on, the second's from plane `second` on."""
  return tuple(
    Piece(start + i, owner, x) for owner, start in ((0, 0), (1, second)) for i, x in enumerate(letters)
  )


def _numbers(planes: int) -> tuple[Piece, ...]:
  """Plane i holds the tiles of 2^i; plane 0 the empty ones."""
  return tuple(Piece(i, None, str(2**i)) for i in range(1, planes))


def _count(start: int, stop: int) -> tuple[str, ...]:
  return tuple(str(i) for i in range(start, stop))


_CARD = Fact("card", ("J", "Q", "K"))
_WHITE_FIRST = {"colours": ((245, 245, 245), (20, 20, 20)), "names": ("white", "black")}
_RENDER_SPECS: dict[tuple[str, str], RenderSpec] = {
  ("open_spiel", "tic_tac_toe"): _board("cells", Piece(2, 0, "XO"), Piece(1, 1, "XO"), **_MARKS),
  ("open_spiel", "mnk"): _board("cells", Piece(2, 0, "XO"), Piece(1, 1, "XO"), **_MARKS),
  ("open_spiel", "gomoku"): _board("points", *_STONES, shape=(15, 15)),
  ("open_spiel", "connect_four"): _board(
    "holes", *_STONES, row_0_is_below=True, colours=_RED_AND_YELLOW, names=("red", "yellow")
  ),
  ("open_spiel", "othello"): _board("felt", Piece(1, 0), Piece(2, 1), is_relative=True),
  ("open_spiel", "go"): _board("points", *_STONES, row_0_is_below=True),
  ("open_spiel", "breakthrough"): _board("chequered", *_STONES),
  ("open_spiel", "clobber"): _board("chequered", *_STONES, is_relative=True, **_WHITE_FIRST),
  ("open_spiel", "lines_of_action"): _board("chequered", *_STONES, row_0_is_below=True),
  ("open_spiel", "pentago"): _board("cells", *_STONES, is_relative=True, **_WHITE_FIRST),
  ("open_spiel", "hex"): _board(
    "hexes",
    *(Piece(plane, 0) for plane in (5, 6, 7, 8)),
    *(Piece(plane, 1) for plane in (0, 1, 2, 3)),
  ),
  # Planes of kings, queens, rooks, bishops, knights, pawns in pairs, white first; white is player 1.
  ("open_spiel", "chess"): _board(
    "chequered",
    *(Piece(2 * i + j, 1 - j, x) for i, x in enumerate("KQRBNP") for j in (0, 1)),
    row_0_is_below=True,
  ),
  ("open_spiel", "kuhn_poker"): RenderSpec(
    kind="facts",
    facts=(
      Fact("player", ("0", "1")),
      _CARD,
      *(Fact(f"move {i}", ("pass", "bet")) for i in (1, 2, 3)),
    ),
  ),
  ("open_spiel", "catch"): _place(10, 5),
  ("open_spiel", "deep_sea"): _place(5, 5),
  ("open_spiel", "cliff_walking"): _place(4, 8),
  ("pgx", "tic_tac_toe"): _board("cells", Piece(0, 0, "XO"), Piece(1, 1, "XO"), is_relative=True, **_MARKS),
  ("pgx", "connect_four"): _board(
    "holes", *_STONES, is_relative=True, colours=_RED_AND_YELLOW, names=("red", "yellow")
  ),
  ("pgx", "othello"): _board("felt", *_STONES, is_relative=True),
  ("pgx", "go_9x9"): _board("points", *_STONES, is_relative=True),
  ("pgx", "go_19x19"): _board("points", *_STONES, is_relative=True),
  ("pgx", "hex"): _board("hexes", *_STONES, is_relative=True),
  ("pgx", "2048"): _board("tiles", *_numbers(31)),
  ("pgx", "chess"): _board(
    "chequered", *_sides(_CHESS_LETTERS, 6), is_relative=True, second_sees="upside_down", **_WHITE_FIRST
  ),
  ("pgx", "gardner_chess"): _board(
    "chequered", *_sides(_CHESS_LETTERS, 6), is_relative=True, second_sees="upside_down", **_WHITE_FIRST
  ),
  # Chick, elephant, giraffe, lion, hen.
  ("pgx", "animal_shogi"): _board("cells", *_sides("CEGLH", 5), is_relative=True, second_sees="turned"),
  ("pgx", "shogi"): _board("cells", *_sides(_SHOGI_LETTERS, 14), is_relative=True, second_sees="turned"),
  ("pgx", "kuhn_poker"): RenderSpec(
    kind="facts", facts=(_CARD, Fact("own chips", ("0", "1")), Fact("other's chips", ("0", "1")))
  ),
  ("gymnasium", "Blackjack"): RenderSpec(
    kind="facts",
    facts=(
      Fact("sum", _count(0, 32)),
      Fact("dealer shows", _count(0, 11)),
      Fact("usable ace", ("no", "yes")),
    ),
    action_names=("stick", "hit"),
  ),
  ("gymnasium", "FrozenLake"): _place(4, 4, "left", "down", "right", "up"),
  ("gymnasium", "FrozenLake8x8"): _place(8, 8, "left", "down", "right", "up"),
  ("gymnasium", "CliffWalking"): _place(4, 12, "up", "right", "down", "left"),
  ("gymnasium", "Taxi"): RenderSpec(
    kind="vector", action_names=("south", "north", "east", "west", "pick up", "drop off")
  ),
  ("gymnasium", "LunarLander"): RenderSpec(
    kind="vector",
    names=("x", "y", "x speed", "y speed", "angle", "spin", "left leg", "right leg"),
    action_names=("none", "left engine", "main engine", "right engine"),
  ),
  ("gymnax", "FourRooms-misc"): RenderSpec(kind="vector", names=("row", "column", "goal row", "goal column")),
}
for _library in ("gymnasium", "gymnax"):
  _RENDER_SPECS |= {
    (_library, "CartPole"): RenderSpec(
      kind="vector", names=("position", "speed", "angle", "spin"), action_names=("left", "right")
    ),
    (_library, "MountainCar"): RenderSpec(
      kind="vector", names=("position", "speed"), action_names=("left", "none", "right")
    ),
    (_library, "Acrobot"): RenderSpec(
      kind="vector",
      names=("cos 1", "sin 1", "cos 2", "sin 2", "speed 1", "speed 2"),
      action_names=("back", "none", "forth"),
    ),
  }
_RENDER_SPECS["gymnasium", "CliffWalkingSlippery"] = _RENDER_SPECS["gymnasium", "CliffWalking"]
