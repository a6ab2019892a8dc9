"""Episodes as moving pictures: what was seen, and beside it what was thought and done."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.vis.frames import enlarge, render_frame

_PICTURE_SIZE = 240
_PANEL_WIDTH = 236
_LINE = 18
_FONT_SIZE = 14
_MARGIN = 10
_MAX_BARS = 12
_INK = (235, 235, 235)
_FAINT = (150, 150, 150)
_PAPER = (28, 28, 34)
_BAR = (86, 180, 233)
_CHOSEN = (230, 159, 0)
_LAST_FRAME_MS = 1000


def write_gif(path: str | Path, images: Sequence[np.ndarray], fps: float) -> Path:
  """Writes a GIF that repeats for ever, and rests for a second on its last frame.

  Args:
    path: the file; it appears whole or not at all. Its folder is made where it is missing.
    images: [h, w, 3] uint8 each, all of one size.
    fps: frames a second; a GIF counts in hundredths of a second, so it is met approximately.

  Returns: the path.
  Raises: ValueError: where there is no image, they are not alike, or fps is not in (0, 50].
  """
  if not images:
    raise ValueError("images is empty: a GIF has at least one frame")
  if not 0 < fps <= 50:
    raise ValueError(f"fps={fps}: must be above 0 and at most 50")
  for i, image in enumerate(images):
    if image.shape != images[0].shape or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
      raise ValueError(
        f"images[{i}]: {image.dtype}{list(image.shape)}; all must be uint8 of one size [h, w, 3]"
      )
  path = Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  durations = [max(20, round(100 / fps) * 10)] * (len(images) - 1) + [_LAST_FRAME_MS]
  # One palette for all frames: colours mean something here, and must not drift from frame to frame.
  palette = _common_palette(images)
  frames = [Image.fromarray(image).quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
  partial = path.with_name(f".{path.name}.{os.getpid()}")
  try:
    frames[0].save(
      partial,
      format="GIF",
      save_all=True,
      append_images=frames[1:],
      duration=durations,
      loop=0,
      optimize=False,
    )
    os.replace(partial, path)
  finally:
    partial.unlink(missing_ok=True)
  return path


def episode_images(
  frames: np.ndarray,
  actions: np.ndarray,
  rewards: np.ndarray,
  root_values: np.ndarray,
  action_probs: np.ndarray,
  spec: EnvSpec,
  pictures: np.ndarray | None = None,
) -> list[np.ndarray]:
  """An episode's pictures: the frame, and beside it the step, action, reward, value and policy.

  Args:
    frames: [T, H, W, C] of the spec's dtype.
    actions: [T] agent actions; the dummy where none was taken.
    rewards: [T], received on entering each frame.
    root_values: [T].
    action_probs: [T, A]; of more than 12 actions the likeliest 12 are drawn.
    spec: the facts of the world.
    pictures: [T, h, w, 3] uint8, drawn in the frames' place: a world's own, as it looks to a person.

  Returns: T arrays [h, w, 3] uint8, all of one size.
  Raises: ValueError: where the arrays do not fit one another, or the spec.
  """
  num_steps = len(frames)
  given = {"actions": actions, "rewards": rewards, "root_values": root_values, "action_probs": action_probs}
  shapes = dict.fromkeys(("actions", "rewards", "root_values"), (num_steps,)) | {
    "action_probs": (num_steps, spec.num_actions)
  }
  for name, shape in shapes.items():
    if np.shape(given[name]) != shape:
      raise ValueError(f"{name}: shape {np.shape(given[name])}; must be {shape}")
  if pictures is not None:
    is_picture = pictures.ndim == 4 and pictures.shape[3] == 3 and pictures.dtype == np.uint8
    if not is_picture or len(pictures) != num_steps:
      got = f"{pictures.dtype}{list(pictures.shape)}"
      raise ValueError(f"pictures: {got}; must be uint8[{num_steps}, h, w, 3]")
  returns = np.cumsum(np.asarray(rewards, np.float64))
  scale = _scale(spec.frame_shape if pictures is None else pictures.shape[1:])
  out = []
  for t in range(num_steps):
    lines = [
      f"step {t} of {num_steps - 1}",
      f"action {_action_name(spec, int(actions[t]))}",
      f"reward {float(rewards[t]):+.3g}   sum {returns[t]:.4g}",
      f"value {float(root_values[t]):.3f}",
    ]
    panel = _panel(lines, np.asarray(action_probs[t], np.float64), int(actions[t]), spec)
    picture = render_frame(frames[t], spec, scale) if pictures is None else enlarge(pictures[t], scale)
    out.append(_beside(picture, panel))
  return out


def _panel(lines: Sequence[str], probs: np.ndarray, action: int, spec: EnvSpec) -> np.ndarray:
  """Text, and below it a bar for each action, the one taken in its own colour."""
  num_bars = min(len(probs), _MAX_BARS)
  shown = np.sort(np.argsort(-probs, kind="stable")[:num_bars])
  height = 2 * _MARGIN + _LINE * (len(lines) + 1 + num_bars)
  image = Image.new("RGB", (_PANEL_WIDTH, height), _PAPER)
  draw, font = ImageDraw.Draw(image), _font()
  for i, line in enumerate(lines):
    draw.text((_MARGIN, _MARGIN + i * _LINE), line, fill=_INK, font=font)
  bar_left, bar_right = 92, _PANEL_WIDTH - 52
  for row, index in enumerate(shown):
    top = _MARGIN + (len(lines) + 1 + row) * _LINE
    prob = float(np.clip(np.nan_to_num(probs[index]), 0.0, 1.0))
    is_chosen = index == action
    draw.text(
      (_MARGIN, top), _action_name(spec, int(index))[:11], fill=_INK if is_chosen else _FAINT, font=font
    )
    draw.rectangle((bar_left, top + 3, bar_right, top + _LINE - 4), outline=(70, 70, 80))
    if prob > 0:
      right = bar_left + round(prob * (bar_right - bar_left))
      draw.rectangle((bar_left, top + 3, right, top + _LINE - 4), fill=_CHOSEN if is_chosen else _BAR)
    draw.text((bar_right + 8, top), f"{prob:.2f}", fill=_INK if is_chosen else _FAINT, font=font)
  return np.asarray(image)


def _beside(left: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Two pictures side by side on one sheet, each in the middle of its height."""
  height = max(left.shape[0] + 2 * _MARGIN, right.shape[0])
  sheet = np.full((height, left.shape[1] + 2 * _MARGIN + right.shape[1], 3), _PAPER, np.uint8)
  top = (height - left.shape[0]) // 2
  sheet[top : top + left.shape[0], _MARGIN : _MARGIN + left.shape[1]] = left
  top = (height - right.shape[0]) // 2
  sheet[top : top + right.shape[0], left.shape[1] + 2 * _MARGIN :] = right
  return sheet


def _action_name(spec: EnvSpec, action: int) -> str:
  if action == DUMMY_ACTION:
    return "dummy"
  return spec.action_names[action - 1] if action <= len(spec.action_names) else f"action {action - 1}"


def _scale(shape: tuple[int, ...]) -> int:
  """Pixels to a cell such that a frame of this shape [H, W, C] is about as large as the panel beside it."""
  height, width, channels = shape
  longest = max(height, width) if max(height, width) > 1 else max(channels, 10)
  return max(1, _PICTURE_SIZE // longest)


def _common_palette(images: Sequence[np.ndarray]) -> Image.Image:
  """A palette made of a sample of the frames, stacked."""
  sample = images[:: max(1, len(images) // 8)]
  return Image.fromarray(np.concatenate(sample)).quantize(colors=255, method=Image.Quantize.MAXCOVERAGE)


@functools.cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
  return ImageFont.load_default(_FONT_SIZE)
