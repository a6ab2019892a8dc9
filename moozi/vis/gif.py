"""Draws episodes as GIFs: the frame, and beside it the action, reward, value and policy."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from PIL import Image

from moozi.core.factors import Factors
from moozi.core.factors import value_text as dimension_text
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.io.atomic_write import atomic_path
from moozi.vis.action_names import action_label, action_name, dimensions_text, is_dummy
from moozi.vis.frames import draw_frame, legend_of
from moozi.vis.lettering import (
  FAINT,
  INK,
  PAPER,
  Picture,
  fit,
  paper,
  rounded,
  text_width,
  value_text,
  write,
)
from moozi.vis.render_spec import mover_text, player_name

_PICTURE_SIZE = 240
_PANEL_WIDTH = 236
_NAME_WIDTH = 78
_MAX_NAME_WIDTH = 300
_LINE = 18
_MARGIN = 10
_MAX_BARS = 12
_MAX_OUTCOMES = 6
_OUTLINE = (70, 70, 80)
_BAR = (86, 180, 233)
_CHOSEN = (230, 159, 0)
_LAST_FRAME_MS = 1000


class LazyImages(Sequence[Picture]):
  """A sequence that draws each picture when it is read, so that not all are in memory."""

  def __init__(self, num_images: int, draw: Callable[[int], Picture]) -> None:
    self._num_images, self._draw = num_images, draw

  def __len__(self) -> int:
    return self._num_images

  @overload
  def __getitem__(self, index: int) -> np.ndarray: ...
  @overload
  def __getitem__(self, index: slice) -> "LazyImages": ...
  def __getitem__(self, index: int | slice) -> "np.ndarray | LazyImages":
    chosen = range(self._num_images)[index]
    if isinstance(chosen, range):
      return LazyImages(len(chosen), lambda i: self._draw(chosen[i]))
    return self._draw(chosen)


def write_gif(path: str | Path, images: Sequence[np.ndarray], fps: float) -> Path:
  """Writes a GIF atomically and returns its path; creates the folder if it is missing.

  The GIF loops, and shows its last frame for a second. The images are [h, w, 3] uint8, all of one size. Up to
  15 of them are read first, for the palette; then each is read in turn.

  Raises: ValueError: there is no image, an image has another size or dtype, or fps is outside (0, 50].
  """
  if not images:
    raise ValueError("images is empty: must have at least one")
  if not 0 < fps <= 50:
    raise ValueError(f"fps={fps}: must be above 0 and at most 50")
  path = Path(path)
  durations = [max(20, round(100 / fps) * 10)] * (len(images) - 1) + [_LAST_FRAME_MS]
  # All frames share one palette, made from at most 15 of them, so that a color means the same in each.
  sample = np.concatenate(list(read_images(images, step=max(1, len(images) // 8))))
  palette = Image.fromarray(sample).quantize(colors=255, method=Image.Quantize.MAXCOVERAGE)
  frames = (
    Image.fromarray(x).quantize(palette=palette, dither=Image.Dither.NONE) for x in read_images(images)
  )
  with atomic_path(path) as partial:
    next(frames).save(
      partial, format="GIF", save_all=True, append_images=frames, duration=durations, loop=0, optimize=False
    )
  return path


def episode_images(
  frames: np.ndarray,
  actions: np.ndarray,
  rewards: np.ndarray,
  root_values: np.ndarray,
  action_probs: np.ndarray,
  spec: EnvSpec,
  chance_probs: np.ndarray | None = None,
  pictures: np.ndarray | None = None,
  to_play: np.ndarray | None = None,
  seat: int | None = None,
  length: int | None = None,
  choices: np.ndarray | None = None,
) -> LazyImages:
  """Draws each step of an episode: the frame, and beside it the step, action, reward, value and policy.

  The arguments are the fields of `core.search_record.PlayedEpisode`; a `length` of None means T - 1. If
  `pictures` is given, it is drawn instead of the frames. The policy shows at most 12 choices, the most
  probable ones; joint actions are shown by the values of their dimensions. With `chance_probs`, at most 6
  outcomes of the action, the most probable ones, are below the policy.

  Returns: T pictures [h, w, 3] uint8 of one size.
  Raises: ValueError: shapes or dtypes do not match each other or the spec.
  """
  num_steps = len(frames)
  all_actions = np.arange(spec.policy_size)
  num_choices = spec.policy_size if choices is None else np.shape(choices)[-1]
  length = num_steps - 1 if length is None else length
  to_play = np.zeros(num_steps, np.int32) if to_play is None else to_play
  num_codes = 0 if chance_probs is None else np.shape(chance_probs)[-1]
  widths = {"action_probs": num_choices, "choices": num_choices, "chance_probs": num_codes}
  by_step = {"actions": actions, "rewards": rewards, "root_values": root_values, "to_play": to_play}
  by_step |= {"action_probs": action_probs} | ({} if chance_probs is None else {"chance_probs": chance_probs})
  by_step |= {} if choices is None else {"choices": choices}
  for name, array in by_step.items():
    tail = spec.action_shape if name == "actions" else (widths[name],) if name in widths else ()
    shape = (num_steps, *tail)
    if np.shape(array) != shape:
      raise ValueError(f"{name}: shape {np.shape(array)}; must be {shape}")
  if pictures is not None and (
    pictures.dtype != np.uint8 or pictures.shape != (num_steps, *pictures.shape[1:3], 3)
  ):
    kind = f"{pictures.dtype}{list(pictures.shape)}"
    raise ValueError(f"pictures: {kind}; must be uint8[{num_steps}, h, w, 3]")
  returns = np.cumsum(np.asarray(rewards, np.float64))
  first = None if pictures is None else pictures[0]
  width = draw_frame(frames[0], spec, _PICTURE_SIZE, int(to_play[0]), first).shape[1] if num_steps else 0
  legend = legend_of(spec, max(width, _PICTURE_SIZE)) if pictures is None else None
  name_width, num_bars = _name_width(spec), min(spec.num_env_actions, num_choices, _MAX_BARS)

  def draw(t: int) -> np.ndarray:
    own = None if pictures is None else pictures[t]
    picture = draw_frame(frames[t], spec, _PICTURE_SIZE, int(to_play[t]), own)
    lines = [f"step {t} of {length}"]
    reward = f"reward {rounded(float(rewards[t])):+.3g}"
    if spec.num_players == 2:
      # The reward is for the player who made the previous move.
      to_whom = f" to {player_name(spec, int(to_play[t - 1]))}" if t > 0 else ""
      lines += [mover_text(spec, int(to_play[t]), seat), reward + to_whom]
    else:
      lines += [f"{reward}   sum {rounded(float(returns[t])):.4g}"]
    lines += [value_text(float(root_values[t])), *_action_lines(actions[t], spec)]
    shown = all_actions if choices is None else choices[t]
    bars = _action_bars(np.asarray(action_probs[t]), shown, actions[t], spec)
    panel = _panel([*lines, dimensions_text(spec)], bars, num_bars, name_width)
    if chance_probs is not None:
      outcomes = _outcome_bars(np.asarray(chance_probs[t]))
      panel = np.concatenate([panel, _panel(["predicted outcomes", ""], outcomes, len(outcomes))])
    if legend is not None:
      above, picture = picture, paper(len(picture) + 6 + len(legend), max(picture.shape[1], legend.shape[1]))
      picture[: len(above), : above.shape[1]] = above
      picture[len(above) + 6 :, : legend.shape[1]] = legend
    return _beside(picture, panel)

  return LazyImages(num_steps, draw)


def _action_lines(action: Any, spec: EnvSpec) -> list[str]:
  """Returns the lines that name an action.

  A continuous action has a line for each of its first 12 dimensions, any other action one line.
  """
  name = action_name(spec, action)
  if spec.intervals is None:
    return [name if is_dummy(action) else f"action {name}"]
  names = spec.intervals.names[:_MAX_BARS]
  texts = zip(names, spec.intervals.texts(action), strict=False)
  return [name, *[""] * (len(names) - 1)] if is_dummy(action) else list(map("=".join, texts))


def _action_bars(
  probs: np.ndarray, choices: np.ndarray, action: Any, spec: EnvSpec
) -> list[tuple[str, float, bool]]:
  """Returns the bars of the most probable choices, in their own order; the dummy has none."""
  columns = np.flatnonzero(choices != DUMMY_ACTION)
  shown = np.sort(columns[np.argsort(-probs[columns], kind="stable")[:_MAX_BARS]])
  return [
    (action_label(spec, a), float(probs[i]), a == action)
    for i, a in zip(shown.tolist(), choices[shown].tolist(), strict=True)
  ]


def _name_width(spec: EnvSpec) -> int:
  """Returns the space for the names of bars in pixels; joint actions may need more."""
  if not isinstance(spec.factors, Factors):
    return _NAME_WIDTH
  widest = [max(map(dimension_text, values), key=text_width) for values in spec.factors.values]
  needed = max(text_width(" ".join(widest)), text_width(dimensions_text(spec)) + _NAME_WIDTH - _PANEL_WIDTH)
  return min(max(needed, _NAME_WIDTH), _MAX_NAME_WIDTH)


def _outcome_bars(probs: np.ndarray) -> list[tuple[str, float, bool]]:
  """Returns the bars of the most probable codes, the most probable first."""
  return [
    (f"code {code}", float(probs[code]), False)
    for code in np.argsort(-probs, kind="stable")[:_MAX_OUTCOMES].tolist()
  ]


def _panel(
  lines: Sequence[str], bars: Sequence[tuple[str, float, bool]], num_rows: int, name_width: int = _NAME_WIDTH
) -> np.ndarray:
  """Draws lines above bars of (name, probability, whether it is chosen); the chosen one has its own color.

  Args:
    lines: the last one is the heading of the bars.
    num_rows: space for this number of bars.
    name_width: space for the names in pixels.
  """
  height = 2 * _MARGIN + _LINE * (len(lines) + num_rows)
  width = _PANEL_WIDTH + name_width - _NAME_WIDTH
  panel = paper(height, width)
  for i, line in enumerate(lines):
    ink = INK if i < len(lines) - 1 else FAINT
    write(panel, fit(line, width - _MARGIN), _MARGIN, _MARGIN + i * _LINE, ink)
  bar_left, bar_right = name_width + _MARGIN + 4, width - 52
  for row, (name, prob, is_chosen) in enumerate(bars):
    top = _MARGIN + (len(lines) + row) * _LINE
    prob = float(np.clip(np.nan_to_num(prob), 0.0, 1.0))
    ink = INK if is_chosen else FAINT
    write(panel, fit(name, name_width), _MARGIN, top, ink)
    panel[top + 3 : top + _LINE - 3, bar_left : bar_right + 1] = _OUTLINE
    panel[top + 4 : top + _LINE - 4, bar_left + 1 : bar_right] = PAPER
    length = round(prob * (bar_right - bar_left))
    panel[top + 3 : top + _LINE - 3, bar_left : bar_left + length] = _CHOSEN if is_chosen else _BAR
    write(panel, f"{prob:.2f}", bar_right + 8, top, ink)
  return panel


def _beside(left: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Puts two pictures side by side, vertically centered."""
  sheet = paper(max(len(left), len(right)) + 2 * _MARGIN, left.shape[1] + 2 * _MARGIN + right.shape[1])
  for picture, at in ((left, _MARGIN), (right, left.shape[1] + 2 * _MARGIN)):
    top = (len(sheet) - len(picture)) // 2
    sheet[top : top + len(picture), at : at + picture.shape[1]] = picture
  return sheet


def read_images(images: Sequence[np.ndarray], step: int = 1) -> Iterator[np.ndarray]:
  """Yields every `step`-th image. Raises ValueError if an image is not uint8 of the first one's size."""
  shape = None
  for i in range(0, len(images), step):
    image = images[i]
    shape = image.shape if shape is None else shape
    if image.shape != shape or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
      kind = f"{image.dtype}{list(image.shape)}"
      raise ValueError(f"images[{i}]: {kind}; must be uint8[h, w, 3] of one size")
    yield image
