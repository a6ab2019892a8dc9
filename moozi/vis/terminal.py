"""Draws episodes for a terminal: frames as half-block characters, beside the search's value and policy."""

import itertools
from collections.abc import Sequence

import numpy as np
from PIL import Image
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from moozi.core.search_record import PlayedStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.text import printable
from moozi.vis.action_names import action_label, action_name, dimensions_text, is_dummy
from moozi.vis.boards import board_text
from moozi.vis.frames import draw_frame, named_planes, vector_text
from moozi.vis.lettering import Frame, Picture, rounded, value_text
from moozi.vis.render_spec import mover_text, render_spec_of, signs_of

_BAR_LENGTH = 20
_MAX_BARS = 12
# Fewer columns have no space for text beside a picture.
_BESIDE = 60


def half_blocks(picture: Picture, columns: int, rows: int) -> Text:
  """Returns a picture as `▀` characters, each two pixels high, scaled down if it is too large."""
  height, width = picture.shape[:2]
  share = min(1.0, columns / width, 2 * rows / height)
  if share < 1:
    shape = (max(1, int(width * share)), max(1, int(height * share)))
    picture = np.asarray(Image.fromarray(picture).resize(shape, Image.Resampling.BOX))
  text = Text(no_wrap=True)
  for row in range(0, len(picture), 2):
    pairs = np.concatenate(list(picture[row : row + 2]), axis=1)
    starts = np.flatnonzero((pairs[1:] != pairs[:-1]).any(axis=1)) + 1
    for a, b in itertools.pairwise([0, *starts.tolist(), len(pairs)]):
      top, bottom = _color(pairs[a, :3]), _color(pairs[a, 3:])
      text.append("▀" * (b - a), Style(color=top, bgcolor=bottom))
    text.append("\n")
  text.rstrip()
  return text


def _color(rgb: np.ndarray) -> str | None:
  """Returns a color for rich; None (the terminal's color) if there is no pixel below an odd last row."""
  return "#{:02x}{:02x}{:02x}".format(*rgb.tolist()) if len(rgb) else None


def frame_view(
  frame: Frame,
  spec: EnvSpec,
  to_play: int,
  picture: Picture | None,
  columns: int,
  rows: int,
  *,
  has_color: bool = True,
) -> RenderableType:
  """Draws a frame for a terminal: as half blocks, or as text if it is a vector or a board with letters.

  `picture` is the environment's own picture, which is drawn as half blocks instead of the frame, or None.
  `columns` and `rows` are the space in characters.
  Without colors (NO_COLOR), a frame is text if `frame_text` has one, because all half blocks would be equal.
  """
  render_spec = render_spec_of(spec)
  if not has_color and (text := frame_text(frame, spec, to_play)):
    return Text(text, no_wrap=True)
  if picture is None:
    if render_spec.kind in ("vector", "facts"):
      return Text(vector_text(frame, spec).replace(", ", "\n"))
    if render_spec.board is not None and any(p.mark not in ("", "XO") for p in render_spec.board.pieces):
      return Text(board_text(frame, spec, to_play), no_wrap=True)
  size = max(1, min(columns, 2 * rows))
  view = half_blocks(draw_frame(frame, spec, size, to_play, picture), columns, rows)
  if picture is not None or not (planes := named_planes(spec)):
    return view
  legend = Text()
  for name, color in planes:
    legend.append("■ ", Style(color="#{:02x}{:02x}{:02x}".format(*color))).append(f"{name}  ")
  return Group(view, legend)


def frame_text(frame: Frame, spec: EnvSpec, to_play: int) -> str:
  """Returns a frame as text without colors; "" for images.

  A cell of planes shows the sign of its first plane that is set (`signs_of`), in lower case.
  """
  render_spec = render_spec_of(spec)
  if render_spec.board is not None:
    return board_text(frame, spec, to_play)
  if render_spec.kind in ("vector", "facts"):
    return vector_text(frame, spec)
  if render_spec.kind == "image":
    return ""
  planes = np.asarray(frame) > 0.5
  signs = [sign.lower() for sign in signs_of(render_spec.names or ("",) * planes.shape[-1])]
  width = max(map(len, signs))
  first = np.where(planes.any(axis=-1), planes.argmax(axis=-1), len(signs))
  return "\n".join(" ".join([*signs, "."][i].rjust(width) for i in row) for row in first)


def step_view(
  step: PlayedStep, spec: EnvSpec, lines: Sequence[str], columns: int, rows: int, *, has_color: bool = True
) -> RenderableType:
  """Draws a frame beside lines of text and the policy, or below them if there are fewer than 60 columns.

  The chosen action is marked in the policy.
  """
  text = Text(printable("\n".join(lines)))
  text.append("\n\n").append_text(_policy(step, spec))

  def view(columns: int, rows: int) -> RenderableType:
    return frame_view(step.frame, spec, step.to_play, step.picture, columns, rows, has_color=has_color)

  if columns < _BESIDE:
    return Group(text, view(columns, max(4, rows - text.plain.count("\n") - 1)))
  grid = Table.grid(padding=(0, 3))
  space = max(20, columns - _BAR_LENGTH - 24)
  grid.add_row(view(space, max(4, rows - 2)), text)
  return grid


def step_lines(step: PlayedStep, spec: EnvSpec) -> list[str]:
  """Returns lines with the player to move (with two players), the reward, the value and the action."""
  return [
    *([mover_text(spec, step.to_play, step.seat)] if spec.num_players == 2 else []),
    f"reward {rounded(step.reward):+.3g}",
    value_text(step.root_value),
    "action " * (not is_dummy(step.action)) + action_name(spec, step.action),
  ]


def step_line(step: PlayedStep, spec: EnvSpec) -> str:
  """Returns `step_lines` and, except at an end, the three most probable actions as a line without colors."""
  # Names of joint actions have spaces and end with a number.
  after, between = (" ", " ") if spec.factors is None else (": ", ", ")
  shown = (f"{action_name(spec, a)}{after}{prob:.2f}" for a, prob in _most_probable(step, 3))
  policy = between.join(shown)
  return ", ".join(step_lines(step, spec)) + (
    f"; policy {policy}" if policy and not is_dummy(step.action) else ""
  )


def _policy(step: PlayedStep, spec: EnvSpec) -> Text:
  shown = sorted(_most_probable(step, _MAX_BARS))
  width = max((len(action_label(spec, action)) for action, _ in shown), default=0)
  text = Text(f"{dimensions_text(spec)}\n" if dimensions_text(spec) else "", "dim")
  for action, own in shown:
    prob = float(np.clip(np.nan_to_num(own), 0, 1))
    of_name, of_bar = ("bold", "bold yellow") if action == step.action else ("dim", "cyan")
    text.append(f"{action_label(spec, action).ljust(width)} ", of_name)
    text.append(("█" * round(prob * _BAR_LENGTH)).ljust(_BAR_LENGTH, "·"), of_bar)
    text.append(f" {prob:.2f}\n")
  return text


def _most_probable(step: PlayedStep, count: int) -> list[tuple[int, float]]:
  """Returns the `count` most probable choices except the dummy, with their probabilities."""
  probs = np.asarray(step.action_probs)
  choices = np.arange(len(probs)) if step.choices is None else np.asarray(step.choices)
  columns = np.flatnonzero(choices != DUMMY_ACTION)
  shown = columns[np.argsort(-probs[columns], kind="stable")[:count]]
  return list(zip(choices[shown].tolist(), probs[shown].tolist(), strict=True))
