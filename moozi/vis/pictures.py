"""One frame as a picture of a wanted size, in the way its environment is drawn."""

import numpy as np
from PIL import Image

from moozi.core.spec import EnvSpec
from moozi.vis.boards import draw_board
from moozi.vis.frames import enlarge, plane_colours, render_frame
from moozi.vis.lettering import FAINT, PAPER, text_width, write
from moozi.vis.render_spec import render_spec_of
from moozi.vis.vectors import draw_vector

_LEGEND_FONT = 12
_LEGEND_LINE = 18
_SWATCH = 10


def draw_frame(
  frame: np.ndarray, spec: EnvSpec, size: int, to_play: int = 0, picture: np.ndarray | None = None
) -> np.ndarray:
  """A frame for a person to look at.

  Args:
    frame: [H, W, C] of the spec's dtype.
    spec: the environment's facts.
    size: pixels of the longer side, approximately: cells and pixels are enlarged by whole numbers, and
      pictures larger than `size` are reduced to it.
    to_play: the player from whose view the frame is.
    picture: [h, w, 3] uint8, the environment's own; drawn in the frame's place.

  Returns: [h', w', 3] uint8.
  Raises: ValueError: the frame is not the spec's.
  """
  if picture is not None:
    return _to_size(picture, size)
  kind = render_spec_of(spec).kind
  if kind in ("board", "vector", "facts"):
    _check(frame, spec)
    return draw_board(frame, spec, size, to_play) if kind == "board" else draw_vector(frame, spec, size)
  height, width, _ = spec.frame_shape
  if max(height, width) > size:
    return _to_size(render_frame(frame, spec), size)
  return render_frame(frame, spec, max(1, size // max(height, width)))


def legend_of(spec: EnvSpec, width: int) -> np.ndarray | None:
  """The names of the planes, each beside its colour, in lines of at most so many pixels.

  Returns: [h, width, 3] uint8; None where the planes have no names.
  """
  look = render_spec_of(spec)
  if look.kind != "planes" or not look.names:
    return None
  places, left, top = [], 0, 0
  for name in look.names:
    needed = _SWATCH + 4 + text_width(name, _LEGEND_FONT)
    if left and left + needed > width:
      left, top = 0, top + _LEGEND_LINE
    places.append((left, top))
    left += needed + 10
  legend = np.full((top + _LEGEND_LINE, width, 3), PAPER, np.uint8)
  for name, colour, (left, top) in zip(look.names, plane_colours(len(look.names)), places, strict=True):
    legend[top + 4 : top + 4 + _SWATCH, left : left + _SWATCH] = colour
    write(legend, name, left + _SWATCH + 4, top + 1, FAINT, _LEGEND_FONT)
  return legend


def _to_size(picture: np.ndarray, size: int) -> np.ndarray:
  """The picture enlarged by a whole number, or reduced, so that its longer side is about `size`."""
  height, width = picture.shape[:2]
  longest = max(height, width)
  if longest <= size:
    return enlarge(picture, size // longest)
  shape = (max(1, width * size // longest), max(1, height * size // longest))
  return np.asarray(Image.fromarray(picture).resize(shape, Image.Resampling.BOX))


def _check(frame: np.ndarray, spec: EnvSpec) -> None:
  frame = np.asarray(frame)
  if frame.shape != spec.frame_shape or frame.dtype != np.dtype(spec.frame_dtype):
    raise ValueError(
      f"frame: {frame.dtype}{list(frame.shape)}; {spec.name} has {spec.frame_dtype}{spec.frame_shape}"
    )
