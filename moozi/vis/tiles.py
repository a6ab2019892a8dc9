"""Many episodes side by side on one sheet, all playing at once."""

import math
from collections.abc import Sequence

import numpy as np

from moozi.core.spec import EnvSpec
from moozi.vis.lazy_images import Drawn
from moozi.vis.lettering import FAINT, INK, PAPER, write
from moozi.vis.pictures import draw_frame, legend_of

_SHEET = 400
_SMALLEST_TILE, _LARGEST_TILE = 24, 128
_GAP = 6
_CAPTION = 18
_FONT = 12


def tile_images(
  frames: Sequence[np.ndarray],
  returns: Sequence[np.ndarray],
  spec: EnvSpec,
  to_play: Sequence[np.ndarray],
  pictures: Sequence[np.ndarray | None],
) -> Drawn:
  """A sheet for each step: a tile for each episode, under it its number and its return so far.

  An episode that has come to its last frame stays there, darker, while the others go on.

  Args:
    frames: of each episode [T_i, H, W, C] of the spec's dtype.
    returns: of each episode [T_i], the return so far.
    spec: the environment's facts.
    to_play: of each episode [T_i], the players to move.
    pictures: of each episode [T_i, h, w, 3] uint8, the environment's own; None where it has none.

  Returns: max T_i arrays [h, w, 3] uint8, all of one size, each drawn when it is read; at most about
    400 pixels wide up to 81 episodes.
  Raises: ValueError: no episode, or their parts are not of one length.
  """
  if not frames:
    raise ValueError("frames is empty: a sheet has at least one episode")
  lengths = [len(f) for f in frames]
  for name, given in (("returns", returns), ("to_play", to_play), ("pictures", pictures)):
    got = [n if x is None else len(x) for x, n in zip(given, lengths, strict=False)]
    if got != lengths:
      raise ValueError(f"{name}: lengths {got}; must be {lengths}")
  columns = math.ceil(math.sqrt(len(frames)))
  size = min(_LARGEST_TILE, max(_SMALLEST_TILE, _SHEET // columns - _GAP))

  def draw(i: int, t: int) -> np.ndarray:
    own = pictures[i]
    return draw_frame(frames[i][t], spec, size, int(to_play[i][t]), None if own is None else own[t])

  first = [draw(i, 0) for i in range(len(frames))]
  height, width = (max(tile.shape[axis] for tile in first) for axis in (0, 1))
  legend = legend_of(spec, columns * (width + _GAP)) if pictures[0] is None else None
  blank = _blank_sheet(len(frames), columns, height, width, legend)
  num_steps = max(lengths)

  def draw_sheet(t: int) -> np.ndarray:
    sheet = blank.copy()
    for i, length in enumerate(lengths):
      at = min(t, length - 1)
      is_over = at == length - 1 and length < num_steps
      top = _GAP + (i // columns) * (height + _CAPTION + _GAP)
      left = _GAP + (i % columns) * (width + _GAP)
      tile = draw(i, at)
      sheet[top : top + tile.shape[0], left : left + tile.shape[1]] = tile // 2 if is_over else tile
      caption = sheet[top + height : top + height + _CAPTION, left : left + width]
      told = write(caption, str(i), 0, 2, FAINT, _FONT)
      write(caption, f"{float(returns[i][at]):.4g}", told + 8, 2, FAINT if is_over else INK, _FONT)
    return sheet

  return Drawn(num_steps, draw_sheet)


def _blank_sheet(
  num_tiles: int, columns: int, height: int, width: int, legend: np.ndarray | None
) -> np.ndarray:
  rows = -(-num_tiles // columns)
  below = 0 if legend is None else legend.shape[0] + _GAP
  shape = (_GAP + rows * (height + _CAPTION + _GAP) + below, _GAP + columns * (width + _GAP), 3)
  sheet = np.full(shape, PAPER, np.uint8)
  if legend is not None:
    sheet[-below : -below + legend.shape[0], _GAP : _GAP + legend.shape[1]] = legend[:, : shape[1] - _GAP]
  return sheet
