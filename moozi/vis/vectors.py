"""Frames that are vectors, to be read: bars with names, fields of entries, and facts in words."""

import numpy as np

from moozi.core.spec import EnvSpec
from moozi.vis.frames import PALETTE
from moozi.vis.lettering import FAINT, INK, PAPER, fit, text_width, write
from moozi.vis.render_spec import render_spec_of

_MOST_BARS = 16
_GROUND = (44, 46, 56)
_ABOVE, _BELOW = PALETTE[3], PALETTE[1]


def draw_vector(frame: np.ndarray, spec: EnvSpec, size: int) -> np.ndarray:
  """A vector: facts in words where the environment has them, bars up to 16 entries, else a field of cells.

  Bars go right for positive and left for negative values, v squashed to v / (1 + |v|); the number stands
  beside. In a field, row by row, a cell is the brighter the larger the entry is, in one colour above zero and
  another below.

  Args:
    frame: [1, 1, D], bool, uint8 or float32.
    spec: the environment's facts.
    size: pixels of the longer side.

  Returns: [h, w, 3] uint8, h and w at most `size`.
  """
  vector = np.nan_to_num(np.asarray(frame)[0, 0].astype(np.float64))
  look = render_spec_of(spec)
  if look.facts:
    return _facts(vector, spec, size)
  return _bars(vector, look.names, size) if len(vector) <= _MOST_BARS else _field(vector, size)


def vector_text(frame: np.ndarray, spec: EnvSpec) -> str:
  """A vector in one line: its facts, its entries by name, or the places of those that are not zero."""
  vector = np.nan_to_num(np.asarray(frame)[0, 0].astype(np.float64))
  look = render_spec_of(spec)
  if look.facts:
    return ", ".join(f"{label} {value}" for label, value in facts_of(vector, spec) if value != "-")
  if len(vector) <= _MOST_BARS:
    names = look.names or tuple(map(str, range(len(vector))))
    return ", ".join(f"{name} {value:.3g}" for name, value in zip(names, vector, strict=True))
  return "set: " + " ".join(map(str, np.flatnonzero(vector)))


def facts_of(vector: np.ndarray, spec: EnvSpec) -> list[tuple[str, str]]:
  """Label and value of each fact that a vector [D] holds; `-` where none of its entries is set."""
  out, start = [], 0
  for fact in render_spec_of(spec).facts:
    entries = vector[start : start + len(fact.values)]
    out.append((fact.label, fact.values[int(entries.argmax())] if entries.any() else "-"))
    start += len(fact.values)
  return out


def _facts(vector: np.ndarray, spec: EnvSpec, size: int) -> np.ndarray:
  facts = facts_of(vector, spec)
  font = max(8, min(22, size // 11))
  line = max(font + 4, min(2 * font, size // len(facts)))
  picture = np.full((line * len(facts), size, 3), PAPER, np.uint8)
  for i, (label, value) in enumerate(facts):
    top = i * line + (line - font) // 2 - 1
    write(picture, fit(label, size * 11 // 20, font), 4, top, FAINT, font)
    left = size * 3 // 5
    if value != "-":
      picture[i * line + 1 : (i + 1) * line - 1, left - 4 :] = _GROUND
    write(picture, fit(value, size - left, font), left, top, INK if value != "-" else FAINT, font)
  return picture


def _bars(vector: np.ndarray, names: tuple[str, ...], size: int) -> np.ndarray:
  num_rows = len(vector)
  line = max(3, min(28, size // num_rows))
  font = min(14, line - 4, size // 12)
  has_text = font >= 8
  picture = np.full((line * num_rows, size, 3), PAPER, np.uint8)
  left, right = (size * 2 // 5, size - text_width("-00.00", font) - 4) if has_text else (0, size)
  middle, reach = (left + right) // 2, (right - left) // 2 - 1
  for i, value in enumerate(vector):
    top, bottom = i * line + max(1, line // 6), (i + 1) * line - max(1, line // 6)
    picture[top:bottom, left:right] = _GROUND
    length = round(float(value / (1 + abs(value))) * reach)
    if length >= 0:
      picture[top:bottom, middle : middle + length] = _ABOVE
    else:
      picture[top:bottom, middle + length : middle] = _BELOW
    picture[top:bottom, middle] = FAINT
    if has_text:
      text_top = i * line + (line - font) // 2 - 1
      name = names[i] if names else str(i)
      write(picture, fit(name, left - 6, font), 2, text_top, FAINT, font)
      write(picture, fit(f"{value:.2f}", size - right - 4, font), right + 4, text_top, INK, font)
  return picture


def _field(vector: np.ndarray, size: int) -> np.ndarray:
  columns = int(np.ceil(np.sqrt(len(vector))))
  rows = -(-len(vector) // columns)
  cell = max(1, size // columns)
  value = np.zeros(rows * columns)
  value[: len(vector)] = vector
  strength = np.abs(value) / (1 + np.abs(value))
  # A boolean that is set is as bright as can be, a number never quite.
  strength = np.where(np.isin(value, (0, 1)), value, strength)
  colour = np.where((value >= 0)[:, None], _ABOVE, _BELOW)
  cells = np.array(_GROUND) + (colour - np.array(_GROUND)) * strength[:, None]
  cells[len(vector) :] = PAPER
  picture = cells.astype(np.uint8).reshape(rows, columns, 3).repeat(cell, axis=0).repeat(cell, axis=1)
  if cell >= 4:
    picture[cell - 1 :: cell] = PAPER
    picture[:, cell - 1 :: cell] = PAPER
  return picture
