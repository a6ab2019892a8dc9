"""Draws board games: discs in columns, stones on lines, marks in cells, lettered pieces, numbered tiles."""

import functools

import numpy as np
from PIL import Image, ImageDraw

from moozi.core.spec import EnvSpec
from moozi.vis.lettering import Color, Frame, Picture, font
from moozi.vis.render_spec import Board, board_of, mark_of, owner_of, player_name, render_spec_of, view_of

# Factor of supersampling, for smooth edges.
_FINE = 4
_NOBODY: Color = (204, 121, 167)
_WOOD: Color = (214, 170, 104)
_LINE: Color = (70, 50, 25)
_HOLES: Color = (0, 90, 190)
_EMPTY_HOLE: Color = (24, 24, 40)
_FELT: Color = (0, 110, 78)
_LIGHT, _DARK = (190, 178, 158), (128, 112, 96)
_CELL, _CELL_LINE = (58, 62, 74), (96, 102, 118)
_TILE = (50, 54, 64)


def draw_board(frame: Frame, spec: EnvSpec, size: int, to_play: int = 0) -> Picture:
  """Draws the board of a frame that `to_play` sees, in the same orientation for both players.

  The longer side has at most `size` pixels, unless cells of 4 by 4 pixels need more.

  Raises: ValueError: the render spec has no board.
  """
  board, to_play = _board(spec), view_of(frame, spec, to_play)
  cells = board_of(frame, board, to_play)
  rows, columns = cells.shape
  is_hex = board.ground == "hexes"
  width = columns + (rows - 1) / 2 if is_hex else columns
  side = max(4, int(size // max(rows, width)))
  picture = _ground(board.ground, rows, columns, side).copy()
  for row, column in np.argwhere(cells >= 0).tolist():
    piece = board.pieces[cells[row, column]]
    owner = owner_of(piece, board, to_play)
    mark = mark_of(piece, owner)
    if board.ground == "tiles":
      stamp = _number(mark, side)
    else:
      stamp = _stamp(mark, _NOBODY if owner is None else board.colors[owner], side)
    _blend(picture, stamp, row * side, column * side + (row * side // 2 if is_hex else 0))
  return picture


def board_text(frame: Frame, spec: EnvSpec, to_play: int = 0) -> str:
  """Returns the board as text, one line per row; `.` is an empty cell.

  A piece with a mark is shown by its mark. Player 1's marks other than O are in lower case, or followed by '
  if they have no letters. Pieces without marks are `x` (player 0), `o` (player 1) or `#` (no owner).

  Raises: ValueError: the render spec has no board.
  """
  board, to_play = _board(spec), view_of(frame, spec, to_play)
  cells = board_of(frame, board, to_play)
  letters = [_letter(board, i, to_play) for i in range(len(board.pieces))]
  width = max(map(len, letters))
  lines = []
  for row, line in enumerate(cells):
    indent = " " * row if board.ground == "hexes" else ""
    lines.append(indent + " ".join((letters[i] if i >= 0 else ".").rjust(width) for i in line))
  return "\n".join(lines)


def player_on_board(spec: EnvSpec, player: int) -> str:
  """Returns a player's name; if its pieces have no mark, with their letter in `board_text`: `red (x)`."""
  name, board = player_name(spec, player), render_spec_of(spec).board
  if board is None:
    return name
  own = [i for i, piece in enumerate(board.pieces) if owner_of(piece, board, 0) == player]
  letters = {_letter(board, i, 0) for i in own if not mark_of(board.pieces[i], player)}
  return f"{name} ({letters.pop()})" if letters else name


def _board(spec: EnvSpec) -> Board:
  board = render_spec_of(spec).board
  if board is None:
    raise ValueError(f"{spec.name}: its render spec has no board")
  return board


def _letter(board: Board, index: int, to_play: int) -> str:
  piece = board.pieces[index]
  owner = owner_of(piece, board, to_play)
  mark = mark_of(piece, owner)
  if not mark:
    return {0: "x", 1: "o", None: "#"}[owner]
  if owner != 1 or piece.mark == "XO":
    return mark
  return mark.lower() if mark.lower() != mark else f"{mark}'"


def _blend(picture: np.ndarray, stamp: np.ndarray, top: int, left: int) -> None:
  """Blends a picture of a piece [s, s, 4] into the picture of the board, in place."""
  side = len(stamp)
  below = picture[top : top + side, left : left + side]
  alpha = stamp[..., 3:].astype(np.uint16)
  below[...] = (stamp[..., :3] * alpha + below * (255 - alpha)) // 255


@functools.lru_cache(maxsize=64)
def _ground(ground: str, rows: int, columns: int, side: int) -> Picture:
  """Draws the empty board."""
  if ground == "hexes":
    return _hexes(rows, columns, side)
  base = {"points": _WOOD, "holes": _HOLES, "felt": _FELT, "tiles": _TILE}.get(ground, _CELL)
  picture = np.full((rows * side, columns * side, 3), base, np.uint8)
  if ground == "chequered":
    is_dark = (np.arange(rows)[:, None] + np.arange(columns)) % 2
    return np.array([_LIGHT, _DARK], np.uint8)[is_dark].repeat(side, axis=0).repeat(side, axis=1)
  if ground == "holes":
    _blend(picture[:side, :side], _stamp("", _EMPTY_HOLE, side), 0, 0)
    return np.tile(picture[:side, :side], (rows, columns, 1))
  thick = max(1, side // 24)
  if ground == "points":
    half = side // 2
    for i in range(max(rows, columns)):
      picture[i * side + half :, half : -half or None][:thick] = _LINE
      picture[half : -half or None, i * side + half :][:, :thick] = _LINE
    return picture
  for i in range(max(rows, columns) + 1):
    place = slice(max(0, i * side - thick), i * side + thick)
    picture[place] = picture[:, place] = _CELL_LINE if ground != "felt" else (0, 76, 54)
  return picture


def _hexes(rows: int, columns: int, side: int) -> Picture:
  """Draws hexagonal cells; each row is half a cell further right."""
  fine = side * _FINE
  width = columns * fine + (rows - 1) * fine // 2
  image = Image.new("RGB", (width, rows * fine), (28, 28, 34))
  draw = ImageDraw.Draw(image)
  for row in range(rows):
    for column in range(columns):
      left, top = column * fine + row * fine // 2, row * fine
      # Hexagons are taller than a row, so that cells of adjacent rows touch.
      corners = [(0.5, -0.16), (1.0, 0.16), (1.0, 0.84), (0.5, 1.16), (0.0, 0.84), (0.0, 0.16)]
      points = [(left + x * fine, top + y * fine) for x, y in corners]
      draw.polygon(points, fill=_CELL, outline=_CELL_LINE, width=max(1, fine // 16))
  return np.asarray(image.reduce(_FINE))


@functools.lru_cache(maxsize=256)
def _stamp(mark: str, color: Color, side: int) -> np.ndarray:
  """Draws one piece on a transparent background, [side, side, 4] uint8."""
  fine = side * _FINE
  image = Image.new("RGBA", (fine, fine), (*color, 0))
  draw = ImageDraw.Draw(image)
  near, far = 0.16 * fine, 0.84 * fine
  if mark == "X":
    width = max(1, round(0.14 * fine))
    draw.line((near, near, far, far), fill=(*color, 255), width=width)
    draw.line((near, far, far, near), fill=(*color, 255), width=width)
  elif mark == "O":
    draw.ellipse((near, near, far, far), outline=(*color, 255), width=max(1, round(0.12 * fine)))
  else:
    edge = 0.08 * fine
    is_light = sum(color) > 380
    rim = tuple(c // 2 for c in color) if is_light else tuple((c + 255) // 2 for c in color)
    box, width = (edge, edge, fine - edge, fine - edge), max(1, round(0.04 * fine))
    draw.ellipse(box, fill=(*color, 255), outline=(*rim, 255), width=width)
    if mark:
      ink = (10, 10, 10, 255) if is_light else (250, 250, 250, 255)
      _write(draw, mark, fine, ink)
  return np.asarray(image.reduce(_FINE))


@functools.lru_cache(maxsize=128)
def _number(mark: str, side: int) -> np.ndarray:
  """Draws a tile of the game 2048, [side, side, 4] uint8; larger numbers, up to 2048, have warmer colors."""
  fine = side * _FINE
  step = min(1.0, (int(mark).bit_length() - 1) / 11)
  cold, warm = np.array((86, 130, 180)), np.array((230, 159, 0))
  red, green, blue = (cold + (warm - cold) * step).astype(int).tolist()
  image = Image.new("RGBA", (fine, fine), (red, green, blue, 0))
  draw = ImageDraw.Draw(image)
  edge = 0.06 * fine
  draw.rounded_rectangle((edge, edge, fine - edge, fine - edge), 0.1 * fine, fill=(red, green, blue, 255))
  _write(draw, mark, fine, (250, 250, 250, 255))
  return np.asarray(image.reduce(_FINE))


def _write(draw: ImageDraw.ImageDraw, mark: str, fine: int, ink: tuple[int, int, int, int]) -> None:
  size = int(fine * min(0.6, 1.1 / len(mark)))
  draw.text((fine / 2, fine / 2), mark, fill=ink, font=font(size), anchor="mm")
