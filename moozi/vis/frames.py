"""Draws frames: feature planes in fixed colors, images, boards, and vectors as text, bars or cells."""

import numpy as np
from jaxtyping import Float, UInt8

from moozi.core.spec import EnvSpec
from moozi.ops.pictures import shrink
from moozi.vis.boards import draw_board
from moozi.vis.lettering import FAINT, INK, PAPER, Frame, Picture, fit, paper, text_width, write
from moozi.vis.render_spec import render_spec_of

BACKGROUND = (0, 0, 0)
# One fixed color per plane, so that pictures of different runs are comparable. The colors are those of Okabe
# and Ito (2008), with another green and another blue, and white, grey and brown.
PALETTE = (
  (255, 255, 255),  # white: the player, if it is the environment's first plane
  (230, 159, 0),  # orange
  (84, 84, 84),  # grey
  (86, 180, 233),  # sky blue
  (213, 94, 0),  # vermilion
  (0, 145, 103),  # bluish green
  (240, 228, 66),  # yellow
  (0, 90, 190),  # blue
  (204, 121, 167),  # purple
  (100, 50, 20),  # brown
)
_MIN_GRID_SCALE = 6
_MAX_BARS = 16
_MIN_FACT_FONT, _FACT_LEADING = 7, 4
_GROUND = (44, 46, 56)
_POSITIVE, _NEGATIVE = PALETTE[3], PALETTE[1]
_LEGEND_FONT, _LEGEND_LINE, _SWATCH = 12, 18, 10


def draw_frame(
  frame: Frame, spec: EnvSpec, size: int, to_play: int = 0, picture: Picture | None = None
) -> Picture:
  """Draws a frame as its environment's render spec says; if `picture` is given, resizes that instead.

  The longer side has at most `size` pixels; `draw_board` has an exception. Planes and images that are smaller
  are scaled up by an integer, larger ones down by any factor. `to_play` is the player to move.

  Raises: ValueError: the frame's shape or dtype is not that of the spec.
  """
  if picture is not None:
    return _resized(picture, size)
  _check(frame, spec)
  kind = render_spec_of(spec).kind
  if kind == "board":
    return draw_board(frame, spec, size, to_play)
  if kind in ("vector", "facts"):
    return draw_vector(frame, spec, size)
  side = max(spec.frame_shape[:2])
  if side > size:
    return _resized(render_frame(frame, spec), size)
  return render_frame(frame, spec, max(1, size // side))


def render_frame(frame: Frame, spec: EnvSpec, scale: int = 1) -> Picture:
  """Draws a frame of planes or an image; `scale` is the side of a cell in pixels.

  Planes are bool, or float32 with neither 1 nor 3 channels. A cell has the color of its first plane that is
  set. Images are uint8, or float32 with 1 or 3 channels; float32 values are stretched to the full range. An
  image with 3 channels is RGB. Of any other image, only the last channel is drawn, in grey: the newest frame
  of a stack.

  Raises: ValueError: the frame's shape or dtype is not that of the spec, or `scale` is below 1.
  """
  frame = _check(frame, spec)
  if scale < 1:
    raise ValueError(f"scale={scale}: must be at least 1")
  if spec.frame_dtype == "uint8":
    return enlarge(_image(frame), scale)
  if spec.frame_dtype == "float32" and spec.frame_shape[2] in (1, 3):
    values = np.nan_to_num(frame.astype(np.float64))
    low, high = values.min(), values.max()
    return enlarge(_image(((values - low) / ((high - low) or 1.0) * 255).astype(np.uint8)), scale)
  planes = frame > 0.5 if spec.frame_dtype == "float32" else frame
  colors = np.concatenate([plane_colors(planes.shape[-1]), np.array([BACKGROUND], np.uint8)])
  picture = enlarge(colors[np.where(planes.any(axis=-1), planes.argmax(axis=-1), planes.shape[-1])], scale)
  if scale >= _MIN_GRID_SCALE:
    picture[scale - 1 :: scale] //= 2
    picture[:, scale - 1 :: scale] //= 2
  return picture


def plane_colors(num_planes: int) -> UInt8[np.ndarray, "{num_planes} 3"]:
  """Returns one color per plane: those of the palette, then the same colors, darker in each round."""
  rounds, index = np.divmod(np.arange(num_planes), len(PALETTE))
  colors = np.asarray(PALETTE, np.float64)[index] * 0.6 ** rounds[:, None]
  return colors.astype(np.uint8)


def legend_of(spec: EnvSpec, width: int) -> Picture | None:
  """Draws the planes' names beside their colors, `width` pixels wide; returns None if they have no names."""
  if not (planes := named_planes(spec)):
    return None
  places, left, top = [], 0, 0
  for name, _ in planes:
    needed = _SWATCH + 4 + text_width(name, _LEGEND_FONT)
    if left and left + needed > width:
      left, top = 0, top + _LEGEND_LINE
    places.append((left, top))
    left += needed + 10
  legend = paper(top + _LEGEND_LINE, width)
  for (name, color), (left, top) in zip(planes, places, strict=True):
    legend[top + 4 : top + 4 + _SWATCH, left : left + _SWATCH] = color
    write(legend, name, left + _SWATCH + 4, top + 1, FAINT, _LEGEND_FONT)
  return legend


def named_planes(spec: EnvSpec) -> list[tuple[str, tuple[int, int, int]]]:
  """Returns the names and colors of the planes that have a name."""
  names = render_spec_of(spec).names if render_spec_of(spec).kind == "planes" else ()
  colors = plane_colors(len(names)).tolist()
  return [(name, (r, g, b)) for name, (r, g, b) in zip(names, colors, strict=True) if name]


def enlarge(picture: Picture, scale: int) -> Picture:
  """Scales a picture up by an integer."""
  return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def _resized(picture: Picture, size: int) -> Picture:
  """Scales a picture so that its longer side is at most `size`: up by an integer, or down by any factor."""
  longest = max(picture.shape[:2])
  return enlarge(picture, size // longest) if longest <= size else shrink(picture, size)


def _check(frame: Frame, spec: EnvSpec) -> Frame:
  if frame.shape != spec.frame_shape or frame.dtype != np.dtype(spec.frame_dtype):
    raise ValueError(
      f"frame: {frame.dtype}{list(frame.shape)}; {spec.name} has {spec.frame_dtype}{list(spec.frame_shape)}"
    )
  return frame


def _image(frame: np.ndarray) -> np.ndarray:
  return frame if frame.shape[-1] == 3 else np.repeat(frame[..., -1:], 3, axis=-1)


# --- vectors


def draw_vector(frame: Frame, spec: EnvSpec, size: int) -> Picture:
  """Draws a vector [1, 1, D] at most `size` pixels high and wide; all pictures of a spec have one size.

  Draws the facts of the render spec if it has any and their text fits, else bars for up to 16 entries, else a
  grid of cells. The bar of a value v points right if v is positive and left if v is negative. Its length is
  the share |v| / (1 + |v|) of the space. The brightness of a cell shows the magnitude of its entry, and the
  color shows the sign.
  """
  vector, render_spec = _vector(frame), render_spec_of(spec)
  if render_spec.facts and size // len(render_spec.facts) >= _MIN_FACT_FONT + _FACT_LEADING:
    return _facts(vector, spec, size)
  return _bars(vector, render_spec.names, size) if len(vector) <= _MAX_BARS else _cells(vector, size)


def _vector(frame: Frame) -> np.ndarray:
  return np.nan_to_num(np.asarray(frame)[0, 0].astype(np.float64))


def vector_text(frame: Frame, spec: EnvSpec) -> str:
  """Returns a vector as one line: its facts, else its entries; of more than 16, only those that are not 0."""
  vector, render_spec = _vector(frame), render_spec_of(spec)
  if render_spec.facts:
    return ", ".join(f"{label} {value}" for label, value in facts_of(vector, spec) if value != "-")
  if len(vector) <= _MAX_BARS:
    names = render_spec.names or tuple(map(str, range(len(vector))))
    return ", ".join(f"{name} {value:.3g}" for name, value in zip(names, vector, strict=True))
  shown = np.flatnonzero(vector).tolist()
  if render_spec.names:
    return ", ".join(f"{render_spec.names[i]} {vector[i]:.3g}" for i in shown)
  return "set: " + " ".join(map(str, shown))


def facts_of(vector: Float[np.ndarray, " D"], spec: EnvSpec) -> list[tuple[str, str]]:
  """Returns the label of each fact in a vector with the values of its set entries; `-` if none is set."""
  out, start = [], 0
  for fact in render_spec_of(spec).facts:
    entries = vector[start : start + len(fact.values)]
    out.append((fact.label, " ".join(fact.values[i] for i in np.flatnonzero(entries)) or "-"))
    start += len(fact.values)
  return out


def _facts(vector: np.ndarray, spec: EnvSpec, size: int) -> Picture:
  """Draws facts in rows. Long facts take several rows, in a smaller font; the picture's size is the same."""
  facts, left = facts_of(vector, spec), size * 3 // 5
  largest = max(_MIN_FACT_FONT, min(22, size // 11))
  height = min(2 * largest, size // len(facts)) * len(facts)
  for font in range(largest, _MIN_FACT_FONT - 1, -1):
    rows = [
      (label if i == 0 else "", part)
      for label, value in facts
      for i, part in enumerate(_wrapped(value, size - left, font))
    ]
    if len(rows) * (font + _FACT_LEADING) <= height:
      break
  else:
    rows = facts  # one row each, shortened
  line = height // len(rows)
  picture = paper(height, size)
  for i, (label, value) in enumerate(rows):
    top = i * line + (line - font) // 2 - 1
    write(picture, fit(label, size * 11 // 20, font), 4, top, FAINT, font)
    if value != "-":
      picture[i * line + 1 : (i + 1) * line - 1, left - 4 :] = _GROUND
    write(picture, fit(value, size - left, font), left, top, INK if value != "-" else FAINT, font)
  return picture


def _wrapped(text: str, width: int, font: int) -> list[str]:
  """Returns the text in lines of at most `width` pixels, except for longer single words."""
  lines: list[str] = []
  for word in text.split(" "):
    joined = f"{lines[-1]} {word}" if lines else word
    if lines and text_width(joined, font) <= width:
      lines[-1] = joined
    else:
      lines.append(word)
  return lines


def _bars(vector: np.ndarray, names: tuple[str, ...], size: int) -> Picture:
  line = max(3, min(28, size // len(vector)))
  font = min(14, line - 4, size // 12)
  has_text = font >= 8
  picture = paper(line * len(vector), size)
  left, right = (size * 2 // 5, size - text_width("-00.00", font) - 4) if has_text else (0, size)
  middle, max_length = (left + right) // 2, (right - left) // 2 - 1
  for i, value in enumerate(vector):
    top, bottom = i * line + max(1, line // 6), (i + 1) * line - max(1, line // 6)
    picture[top:bottom, left:right] = _GROUND
    end = middle + round(float(value / (1 + abs(value))) * max_length)
    picture[top:bottom, min(middle, end) : max(middle, end)] = _POSITIVE if value >= 0 else _NEGATIVE
    picture[top:bottom, middle] = FAINT
    if has_text:
      text_top = i * line + (line - font) // 2 - 1
      name = names[i] if names else str(i)
      write(picture, fit(name, left - 6, font), 2, text_top, FAINT, font)
      write(picture, fit(f"{value:.2f}", size - right - 4, font), right + 4, text_top, INK, font)
  return picture


def _cells(vector: np.ndarray, size: int) -> Picture:
  columns = int(np.ceil(np.sqrt(len(vector))))
  rows = -(-len(vector) // columns)
  side = max(1, size // columns)
  value = np.pad(vector, (0, rows * columns - len(vector)))
  # 1, the value of a true boolean, is brightest. All other numbers are darker.
  strength = np.where(np.isin(value, (0, 1)), value, np.abs(value) / (1 + np.abs(value)))
  color = np.where((value >= 0)[:, None], _POSITIVE, _NEGATIVE)
  cells = np.array(_GROUND) + (color - np.array(_GROUND)) * strength[:, None]
  cells[len(vector) :] = PAPER
  picture = enlarge(cells.astype(np.uint8).reshape(rows, columns, 3), side)
  if side >= 4:
    picture[side - 1 :: side] = PAPER
    picture[:, side - 1 :: side] = PAPER
  return picture
