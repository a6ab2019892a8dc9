"""The page of `moozi play --web`: its HTML, and positions as plain data for its script."""

import base64
import io
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from PIL import Image

from moozi.core.factors import Factors, value_text
from moozi.core.spec import EnvSpec
from moozi.vis.action_names import action_names
from moozi.vis.frames import draw_frame
from moozi.vis.lettering import Frame
from moozi.vis.render_spec import board_of, render_spec_of
from moozi.vis.report import make_page
from moozi.vis.terminal import frame_text

Mode = Literal["cells", "columns", "from_to", "list"]
"""How the actions of a game name cells of its board; with "list" they name none."""
_PIXELS = 640
# A move from one cell to another, such as `a1-b2`. Columns have letters; row 1 is at the bottom.
_FROM_TO = re.compile(r"([a-z])(\d+)-?([a-z])(\d+)[*]?")


def play_page(title: str) -> str:
  """Returns the HTML of the page; its script requests the game from the server."""
  return make_page(
    title, {}, "play.html", ("play.js",), ("page.css", "play.css"), connects_to_its_server=True
  )


def board_shape(frame: Frame, spec: EnvSpec) -> tuple[int, int] | None:
  """Returns (rows, columns) of the board, or of frames whose actions have places; None for other frames."""
  board = render_spec_of(spec).board
  if board is None:
    return spec.frame_shape[:2] if spec.num_places else None
  rows, columns = board_of(frame, board, 0).shape
  return rows, columns


def cells_of_actions(spec: EnvSpec, rows: int, columns: int) -> tuple[Mode, list[list[int]]]:
  """Returns how actions name cells, and the cells of each action.

  Cells are numbered row · columns + column, with row 0 at the top of the drawn board.

  With "cells", action a is cell a of the frame, row by row. With "columns", an action names all cells of a
  column; with "from_to", a pair of cells. Other actions, such as a pass, name no cell. With "list", the
  second value is empty.
  """
  if spec.is_factored:
    return "list", []
  board = render_spec_of(spec).board
  actions, num_cells = range(spec.num_env_actions), rows * columns
  is_holes = board is not None and board.ground == "holes" and spec.num_env_actions == columns
  if is_holes or spec.action_places == "columns":
    return "columns", [[row * columns + a for row in range(rows)] if a < columns else [] for a in actions]
  if num_cells <= spec.num_env_actions <= num_cells + 1 or spec.action_places == "cells":
    is_flipped = board is not None and board.row_0_is_below
    return "cells", [_drawn(a, rows, columns, is_flipped) if a < num_cells else [] for a in actions]
  return "from_to", [_from_to(name, rows, columns) for name in action_names(spec)[1:]]


def _drawn(cell: int, rows: int, columns: int, is_flipped: bool) -> list[int]:
  row, column = divmod(cell, columns)
  return [(rows - 1 - row if is_flipped else row) * columns + column]


def _from_to(name: str, rows: int, columns: int) -> list[int]:
  found = _FROM_TO.fullmatch(name)
  if found is None:
    return []
  places = [(rows - int(found[i + 1]), ord(found[i]) - ord("a")) for i in (1, 3)]
  is_inside = all(0 <= row < rows and 0 <= column < columns for row, column in places)
  return [row * columns + column for row, column in places] if is_inside else []


def picture_of(frame: Frame, spec: EnvSpec, to_play: int) -> dict[str, Any]:
  """Returns a position as text, and as a picture (a data URL) if it has cells (`board_shape`)."""
  text = frame_text(frame, spec, to_play)
  if board_shape(frame, spec) is None:
    return {"text": text}
  out = io.BytesIO()
  Image.fromarray(draw_frame(frame, spec, _PIXELS, to_play)).save(out, format="PNG")
  return {"text": text, "picture": "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()}


def dimensions_of(spec: EnvSpec) -> list[dict[str, Any]]:
  """Returns the dimensions of joint actions with the texts of their values; none if actions are listed."""
  if not spec.is_factored or not isinstance(spec.factors, Factors):
    return []
  pairs = zip(spec.factors.names, spec.factors.values, strict=True)
  return [{"name": name, "values": list(map(value_text, values))} for name, values in pairs]


def actions_of(spec: EnvSpec, legal: np.ndarray, cells: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
  """Returns the legal actions with their names and cells."""
  names = action_names(spec)[1:]
  return [
    {"action": a, "name": names[a], "cells": list(cells[a]) if cells else []}
    for a in np.flatnonzero(legal).tolist()
  ]
