"""The hidden space as a picture: the path of an episode, the model's own paths, and how far they drift.

Left, the first two principal components of the encoded states: the episode is the thick line, time its color;
thin lines are the model's unrolls, ends marked by rings of the color of the time that they stand for. Right,
the distance between unrolled and encoded states at k steps, relative to the spread of the encoded states:
median and middle half, and in grey that of a model which stays where it began.
"""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from moozi.vis.axes import round_ticks
from moozi.vis.lettering import FAINT, FONT_SIZE, INK, PAPER, fit, text_width, write
from moozi.vis.whole_file import whole_file

Colour = tuple[int, int, int]

_HEAD, _HEIGHT, _LEFT_WIDTH, _RIGHT_WIDTH = 28, 532, 640, 460
_TOP, _BOTTOM, _SIDE = 56, 56, 56
_FINE = 3
_MOST_FITTED = 1000
_GRID: Colour = (60, 60, 70)
_DRIFT: Colour = (230, 159, 0)
_REST: Colour = (150, 150, 150)
# From dark to bright, so that it can be read without colours too; after matplotlib's viridis.
_TIME = np.array(
  [(68, 80, 160), (59, 112, 175), (42, 145, 160), (53, 183, 121), (143, 215, 68), (253, 231, 37)], float
)


@dataclasses.dataclass(frozen=True)
class Projection:
  """The principal components of some states.

  Attributes:
    mean: [D]. components: [C, D], orthonormal. shares: [C], of the variance.
  """

  mean: np.ndarray
  components: np.ndarray
  shares: np.ndarray

  def __call__(self, states: np.ndarray) -> np.ndarray:
    """[…, D] to […, C]; nan stays nan."""
    out: np.ndarray = (states - self.mean) @ self.components.T
    return out


def principal_components(states: np.ndarray, count: int = 2) -> Projection:
  """The first principal components of [T, D] states, so many of them; zeros where there are fewer."""
  states = np.asarray(states, np.float64)
  mean = states.mean(axis=0)
  _, sizes, axes = np.linalg.svd(states - mean, full_matrices=False)
  components = np.zeros((count, states.shape[1]))
  components[: len(axes[:count])] = axes[:count]
  # A component's sign is nobody's: the largest entry is made positive, so that pictures are the same again.
  for row in components:
    row *= np.sign(row[np.abs(row).argmax()]) or 1.0
  shares = np.zeros(count)
  shares[: len(sizes[:count])] = sizes[:count] ** 2 / max((sizes**2).sum(), 1e-30)
  return Projection(mean, components, shares)


def reduced_states(states: np.ndarray, most: int) -> tuple[np.ndarray, float]:
  """States in fewer numbers, as far from one another as their first principal components tell.

  Args:
    states: [N, D], finite. Of more than 1,000 the components are those of 1,000, evenly spread.
    most: how many numbers a state is to have at most.

  Returns: [N, C] and the share of the variance that is in it; the states as they are where D is small enough.
  """
  if states.shape[1] <= most:
    return states, 1.0
  fitted = np.unique(np.linspace(0, len(states) - 1, _MOST_FITTED).round().astype(np.int64))
  project = principal_components(states[fitted], min(most, len(fitted)))
  return project(states), float(project.shares.sum())


def latent_picture(
  encoded: np.ndarray,
  starts: np.ndarray,
  unrolled: np.ndarray,
  drift: np.ndarray,
  rest: np.ndarray,
  title: str,
  trained_steps: int,
) -> np.ndarray:
  """Both panels on one sheet.

  Args:
    encoded: [T, D], the episode's states.
    starts: [S], the steps that unrolls begin with.
    unrolled: [S, K+1, D]; nan past the episode.
    drift, rest: [S, K+1], see `analysis.latent_paths.LatentPaths`; nan past the episode.
    title: one line; cut off where it is too long.
    trained_steps: the unroll that the model was trained with; marked in the right panel.

  Returns: [h, w, 3] uint8.
  """
  project = principal_components(encoded)
  sheet = np.full((_HEAD + _HEIGHT, _LEFT_WIDTH + _RIGHT_WIDTH, 3), PAPER, np.uint8)
  sheet[_HEAD:, :_LEFT_WIDTH] = _paths(project, encoded, starts, unrolled)
  sheet[_HEAD:, _LEFT_WIDTH:] = _drift(drift, rest, trained_steps)
  write(sheet, fit(title, sheet.shape[1] - 32), 16, 12)
  return sheet


def write_latent_picture(path: Path, picture: np.ndarray) -> Path:
  """Writes a picture [h, w, 3] uint8 as PNG, whole or not at all; its folder is made where it is missing."""
  with whole_file(path) as partial:
    Image.fromarray(picture).save(partial, format="PNG")
  return path


def _paths(project: Projection, encoded: np.ndarray, starts: np.ndarray, unrolled: np.ndarray) -> np.ndarray:
  path, own = project(encoded), project(unrolled.astype(np.float64))
  points = np.concatenate([path, own[~np.isnan(own[..., 0])]])
  box = _Box(points, _SIDE, _TOP, _LEFT_WIDTH - 24, _HEIGHT - _BOTTOM, keeps_shape=True)
  image = Image.new("RGB", (_LEFT_WIDTH * _FINE, _HEIGHT * _FINE), PAPER)
  draw = ImageDraw.Draw(image)
  last = max(1, len(path) - 1)
  for t in range(len(path) - 1):
    draw.line((*box(path[t]), *box(path[t + 1])), fill=_time_colour(t / last), width=2 * _FINE)
  for t, point in enumerate(path):
    _dot(draw, box(point), 3.4, _time_colour(t / last))
  for start, line in zip(starts, own, strict=True):
    line = line[~np.isnan(line[:, 0])]
    for k in range(len(line) - 1):
      colour = _time_colour((start + k + 1) / last)
      draw.line((*box(line[k]), *box(line[k + 1])), fill=colour, width=_FINE - 1)
      _ring(draw, box(line[k + 1]), 3.0, colour)
  _ring(draw, box(path[0]), 9.0, INK)
  x, y = box(path[-1])
  for sign in (-1, 1):
    draw.line((x - 8 * _FINE, y - sign * 8 * _FINE, x + 8 * _FINE, y + sign * 8 * _FINE), INK, 2 * _FINE)
  panel = np.array(image.reduce(_FINE))
  write(panel, "the first two principal components", 16, 8, INK, FONT_SIZE)
  text = "thick: encoded; thin with rings: unrolled by the model; white ring: start; cross: end"
  write(panel, text, 16, 30, FAINT, 12)
  for i, share in enumerate(project.shares):
    write(panel, f"PC {i + 1}: {share:.0%} of the variance", 16 + i * 210, _HEIGHT - 40, FAINT, 12)
  _colour_bar(panel, last)
  return panel


def _colour_bar(panel: np.ndarray, last: int) -> None:
  left, right, top = 16, 216, _HEIGHT - 18
  bar = np.array([_time_colour(x) for x in np.linspace(0, 1, right - left)], np.uint8)
  panel[top : top + 8, left:right] = bar
  write(panel, f"step 0 to {last}", right + 8, top - 5, FAINT, 12)


def _drift(drift: np.ndarray, rest: np.ndarray, trained_steps: int) -> np.ndarray:
  image = Image.new("RGB", (_RIGHT_WIDTH * _FINE, _HEIGHT * _FINE), PAPER)
  draw = ImageDraw.Draw(image)
  bands = [_quartiles(rest), _quartiles(drift)]
  num_steps = drift.shape[1] - 1
  highest = max(1e-6, *(float(np.nanmax(band)) for band in bands)) * 1.08
  box = _Box(np.array([[0.0, 0.0], [num_steps, highest]]), _SIDE, _TOP, _RIGHT_WIDTH - 16, _HEIGHT - _BOTTOM)
  ticks = round_ticks(highest)
  for tick in ticks:
    draw.line((*box((0, tick)), *box((num_steps, tick))), fill=_GRID, width=_FINE)
  if trained_steps <= num_steps:
    draw.line((*box((trained_steps, 0)), *box((trained_steps, highest))), fill=FAINT, width=_FINE)
  for (low, middle, high), colour in zip(bands, (_REST, _DRIFT), strict=True):
    known: list[int] = np.flatnonzero(~np.isnan(middle)).tolist()
    around = [box((k, high[k])) for k in known] + [box((k, low[k])) for k in known[::-1]]
    shade = tuple(int(0.7 * p + 0.3 * c) for p, c in zip(PAPER, colour, strict=True))
    if len(known) > 1:
      draw.polygon(around, fill=shade)
    for a, b in itertools.pairwise(known):
      draw.line((*box((a, middle[a])), *box((b, middle[b]))), fill=colour, width=2 * _FINE)
    for k in known:
      _dot(draw, box((k, middle[k])), 3.0, colour)
  panel = np.array(image.reduce(_FINE))
  for tick in ticks:
    write(panel, f"{tick:g}", _SIDE - 8 - text_width(f"{tick:g}", 12), box.row(tick) - 9, FAINT, 12)
  for k in range(0, num_steps + 1, max(1, num_steps // 10)):
    write(panel, str(k), box.column(k) - 4, _HEIGHT - _BOTTOM + 6, FAINT, 12)
  write(panel, "distance from the encoded state, in spreads", 16, 8, INK, FONT_SIZE)
  told = write(panel, "the model's unroll", 16, 30, _DRIFT, 12)
  told += write(panel, "standing still", 16 + told + 14, 30, _REST, 12)
  write(panel, f"line: trained to k = {trained_steps}", 16 + told + 28, 30, FAINT, 12)
  write(panel, "steps k after the start of the unroll", _SIDE, _HEIGHT - 26, FAINT, 12)
  return panel


def _quartiles(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """[S, K+1] to three of [K+1]; nan where no unroll goes that far."""
  out = np.full((3, values.shape[1]), np.nan)
  for k in range(values.shape[1]):
    known = values[:, k][~np.isnan(values[:, k])]
    if len(known):
      out[:, k] = np.percentile(known, (25, 50, 75))
  return out[0], out[1], out[2]


class _Box:
  """From data to pixels of a panel."""

  def __init__(
    self, points: np.ndarray, left: int, top: int, right: int, bottom: int, keeps_shape: bool = False
  ) -> None:
    low, high = points.min(axis=0), points.max(axis=0)
    size = np.maximum(high - low, 1e-9)
    scale = np.array([right - left, bottom - top]) / size
    if keeps_shape:
      # Distances mean something here: both axes alike, and the drawing in the middle.
      scale[:] = scale.min()
    used = size * scale
    self._low, self._scale = low, scale
    self._left = left + (right - left - used[0]) / 2
    self._bottom = bottom - (bottom - top - used[1]) / 2

  def __call__(self, point: np.ndarray | tuple[float, float]) -> tuple[float, float]:
    x, y = (np.asarray(point) - self._low) * self._scale
    return (self._left + x) * _FINE, (self._bottom - y) * _FINE

  def row(self, y: float) -> int:
    return int(self._bottom - (y - self._low[1]) * self._scale[1])

  def column(self, x: float) -> int:
    return int(self._left + (x - self._low[0]) * self._scale[0])


def _time_colour(share: float) -> Colour:
  """From dark (0) to bright (1)."""
  position = float(np.clip(share, 0, 1)) * (len(_TIME) - 1)
  low = min(int(position), len(_TIME) - 2)
  red, green, blue = (_TIME[low] + (_TIME[low + 1] - _TIME[low]) * (position - low)).astype(int).tolist()
  return red, green, blue


def _dot(draw: ImageDraw.ImageDraw, at: tuple[float, float], radius: float, colour: Colour) -> None:
  r = radius * _FINE
  draw.ellipse((at[0] - r, at[1] - r, at[0] + r, at[1] + r), fill=colour)


def _ring(draw: ImageDraw.ImageDraw, at: tuple[float, float], radius: float, colour: Colour) -> None:
  r = radius * _FINE
  draw.ellipse((at[0] - r, at[1] - r, at[0] + r, at[1] + r), outline=colour, width=_FINE)
