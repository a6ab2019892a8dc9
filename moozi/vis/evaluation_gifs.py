"""Writes the videos of an evaluation: one episode with value and policy, and several side by side."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moozi.core.spec import EnvSpec
from moozi.vis.frames import draw_frame, legend_of
from moozi.vis.gif import LazyImages, episode_images
from moozi.vis.lettering import FAINT, INK, fit, paper, rounded, write
from moozi.vis.video import write_video

_FPS = 12
_SHEET = 400
_MIN_TILE, _MAX_TILE = 24, 128
_GAP, _CAPTION, _FONT = 6, 18, 12
_KEY = "episode, its return so far"


# The fields of `core.search_record.PlayedEpisode` that a video shows.
_SHOWN = (
  *("frames", "pictures", "to_play", "actions", "rewards", "root_values"),
  *("action_probs", "choices", "chance_probs", "seat", "length"),
)


def tiles_path(path: Path) -> Path:
  """Returns the path of the video of several episodes, beside the video `path` of one episode."""
  return path.with_name(f"{path.stem}_tiles{path.suffix}")


def write_videos(path: Path, result: Any, spec: EnvSpec) -> list[Path]:
  """Writes the recorded episode and the tiles (if any) of an `EvaluationResult`; returns the paths."""
  write_episode(path, result.episode, spec)
  if not result.tiles:
    return [path]
  write_tiles(tiles_path(path), result.tiles, spec)
  return [path, tiles_path(path)]


def write_episode(path: Path, episode: Any, spec: EnvSpec) -> tuple[int, int]:
  """Writes a video of a `PlayedEpisode` with value and policy; returns its height and width."""
  fields = {name: getattr(episode, name) for name in _SHOWN}
  return _write(path, episode_images(**fields, spec=spec))


def write_tiles(path: Path, tiles: Sequence[Any], spec: EnvSpec) -> tuple[int, int]:
  """Writes a video of one or more `PlayedEpisode` side by side; returns its height and width."""
  fields = {name: [getattr(tile, name) for tile in tiles] for name in ("frames", "to_play", "pictures")}
  return _write(path, tile_images(**fields, returns=[tile.totals for tile in tiles], spec=spec))


def _write(path: Path, images: LazyImages) -> tuple[int, int]:
  write_video(path, images, _FPS)
  height, width, _ = images[0].shape
  return height, width


def tile_images(
  frames: Sequence[np.ndarray],
  returns: Sequence[np.ndarray],
  spec: EnvSpec,
  to_play: Sequence[np.ndarray],
  pictures: Sequence[np.ndarray | None],
) -> LazyImages:
  """Draws one picture per step, with a tile per episode that shows its number and its return so far.

  A line below the tiles says what the two numbers are. An episode that has ended before the longest one shows
  its last frame, darkened. Each argument except `spec` has an entry per episode: the field of a
  `PlayedEpisode` with this name; for `returns`, the field `totals`. Episode i has T_i frames.

  Returns: max T_i pictures [h, w, 3] uint8 of one size.
  Raises: ValueError: there is no episode, or the arguments' lengths differ.
  """
  if not frames:
    raise ValueError("frames is empty: must have at least one episode")
  lengths = [len(f) for f in frames]
  for name, arrays in (("returns", returns), ("to_play", to_play), ("pictures", pictures)):
    found = [n if x is None else len(x) for x, n in zip(arrays, lengths, strict=False)]
    if found != lengths:
      raise ValueError(f"{name}: lengths {found}; must be {lengths}")
  columns = math.ceil(math.sqrt(len(frames)))
  size = min(_MAX_TILE, max(_MIN_TILE, _SHEET // columns - _GAP))

  def draw(i: int, t: int) -> np.ndarray:
    own = pictures[i]
    return draw_frame(frames[i][t], spec, size, int(to_play[i][t]), None if own is None else own[t])

  first = [draw(i, 0) for i in range(len(frames))]
  height, width = (max(tile.shape[axis] for tile in first) for axis in (0, 1))
  legend = legend_of(spec, columns * (width + _GAP)) if pictures[0] is None else None
  bottom = _GAP - (-len(frames) // columns) * (height + _CAPTION + _GAP)
  sheet_width = _GAP + columns * (width + _GAP)
  below = 0 if legend is None else legend.shape[0] + _GAP
  blank = paper(bottom + _CAPTION + below, sheet_width)
  write(blank, fit(_KEY, sheet_width - 2 * _GAP, _FONT), _GAP, bottom, FAINT, _FONT)
  bottom += _CAPTION
  if legend is not None:
    shown = legend[:, : blank.shape[1] - _GAP]
    blank[bottom : bottom + len(shown), _GAP : _GAP + shown.shape[1]] = shown
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
      end = write(caption, str(i), 0, 2, FAINT, _FONT)
      write(caption, f"{rounded(float(returns[i][at])):.4g}", end + 8, 2, FAINT if is_over else INK, _FONT)
    return sheet

  return LazyImages(num_steps, draw_sheet)
