"""What each actor of a run did when, as a picture: a row to each actor, a color to each kind of work.

A column of pixels is a moment of some length. Its color is mixed from what was done in it, each kind with its
share: however many calls fall into one column, what is bright is busy and what is dark is idle.

After the thesis's Figure 4.5.
"""

import io
from collections.abc import Iterable

import numpy as np
from PIL import Image

from moozi.core.actor_report import Timeline, ends, idle_share, shares
from moozi.vis.axes import round_ticks
from moozi.vis.lettering import FAINT, INK, PAPER, Colour, fit, text_width, write

_WIDTH, _LEFT, _RIGHT, _MARGIN = 1400, 190, 84, 16
_ROW, _GAP, _BOTTOM = 26, 8, 44
_LEGEND_TOP, _LEGEND_LINE, _CHIP = 40, 20, 11
_SMALL = 12
_IDLE: Colour = (48, 48, 56)
_GRID: Colour = (84, 84, 94)
# The first six after Okabe and Ito (2008), which are told apart under common color blindnesses.
_COLOURS: dict[str, Colour] = {
  "update": (230, 159, 0),
  "segment": (86, 180, 233),
  "sample": (0, 170, 125),
  "add": (204, 121, 167),
  "priorities": (240, 228, 66),
  "evaluation": (223, 94, 20),
  "reanalyze": (110, 130, 240),
  "positions": (150, 200, 120),
  "write back": (190, 150, 230),
  "publish": (170, 120, 80),
  "publish target": (120, 90, 70),
  "checkpoint": (235, 235, 235),
}
_OTHERS: tuple[Colour, ...] = ((130, 170, 170), (200, 150, 130), (140, 140, 170))


def timeline_picture(timeline: Timeline, title: str, start_s: float = 0.0) -> np.ndarray:
  """The picture, [h, w, 3] uint8. Darker than idle is when nothing is known of an actor.

  Args:
    timeline: not empty.
    title: one line.
    start_s: what the axis begins with.
  """
  begin_s, end_s = ends(timeline)
  kinds = _kinds(timeline)
  places = _legend_places(kinds)
  top = _LEGEND_TOP + _LEGEND_LINE * (1 + max(y for _, y in places.values()) if places else 1) + 24
  height = top + len(timeline) * (_ROW + _GAP) + _BOTTOM
  sheet = np.full((height, _WIDTH, 3), PAPER, np.uint8)
  write(sheet, fit(title, _WIDTH - 2 * _MARGIN), _MARGIN, 12)
  for kind, (x, y) in places.items():
    _chip(sheet, kind, kinds[kind], x, _LEGEND_TOP + _LEGEND_LINE * y)
  write(sheet, "idle", _WIDTH - _RIGHT + 14, top - 22, FAINT, _SMALL)
  edges = np.linspace(begin_s, end_s, _WIDTH - _LEFT - _RIGHT + 1)
  for row, (actor, stretches) in enumerate(timeline.items()):
    y = top + row * (_ROW + _GAP)
    spans = [span for stretch in stretches for span in stretch.spans]
    known = _coverage(edges, ((s.since_s, s.until_s) for s in stretches))
    colour = np.array(PAPER) + known[:, None] * (np.array(_IDLE) - np.array(PAPER))
    for kind in {span.name for span in spans}:
      part = _coverage(edges, ((s.start_s, s.end_s) for s in spans if s.name == kind))
      colour += part[:, None] * (np.array(kinds[kind]) - np.array(_IDLE))
    sheet[y : y + _ROW, _LEFT : _WIDTH - _RIGHT] = np.clip(np.round(colour), 0, 255).astype(np.uint8)
    write(sheet, fit(actor, _LEFT - _MARGIN - 10, _SMALL), _MARGIN, y + 4, INK, _SMALL)
    write(sheet, f"{idle_share(stretches):6.1%}", _WIDTH - _RIGHT + 14, y + 4, INK, _SMALL)
  _axis(sheet, top, height - _BOTTOM, end_s - begin_s, start_s)
  return sheet


def timeline_png(timeline: Timeline, title: str, start_s: float = 0.0) -> bytes:
  """The picture as a PNG file."""
  out = io.BytesIO()
  Image.fromarray(timeline_picture(timeline, title, start_s)).save(out, "PNG")
  return out.getvalue()


def _kinds(timeline: Timeline) -> dict[str, Colour]:
  """Colors by kind of work: those with a color of their own first, others take turns."""
  found = {name for stretches in timeline.values() for name in shares(stretches)}
  others = sorted(found - _COLOURS.keys())
  own = {name: colour for name, colour in _COLOURS.items() if name in found}
  return own | {name: _OTHERS[i % len(_OTHERS)] for i, name in enumerate(others)}


def _legend_places(kinds: Iterable[str]) -> dict[str, tuple[int, int]]:
  """Where each kind stands in the legend: x in pixels, and its line."""
  out, x, line = {}, _MARGIN, 0
  for kind in kinds:
    width = _CHIP + 6 + text_width(kind, _SMALL) + 18
    if x > _MARGIN and x + width > _WIDTH - _MARGIN:
      x, line = _MARGIN, line + 1
    out[kind] = x, line
    x += width
  return out


def _chip(sheet: np.ndarray, kind: str, colour: Colour, x: int, y: int) -> None:
  sheet[y + 3 : y + 3 + _CHIP, x : x + _CHIP] = colour
  write(sheet, kind, x + _CHIP + 6, y - 1, FAINT, _SMALL)


def _coverage(edges: np.ndarray, intervals: Iterable[tuple[float, float]]) -> np.ndarray:
  """[n]: the share of each column that lies in the intervals, which are in order and do not overlap.

  Args:
    edges: [n + 1], the columns'.
    intervals: begin and end of each.
  """
  bounds = np.array(list(intervals), np.float64).reshape(-1, 2)
  if not len(bounds):
    return np.zeros(len(edges) - 1)
  # Seconds inside until then grow along an interval and stand still between two.
  inside = np.repeat(np.cumsum(bounds[:, 1] - bounds[:, 0]), 2)
  inside[0::2] -= bounds[:, 1] - bounds[:, 0]
  out: np.ndarray = np.diff(np.interp(edges, bounds.ravel(), inside)) / np.maximum(np.diff(edges), 1e-12)
  return np.clip(out, 0.0, 1.0)


def _axis(sheet: np.ndarray, top: int, bottom: int, seconds: float, start_s: float) -> None:
  width = _WIDTH - _LEFT - _RIGHT
  for tick in round_ticks(max(seconds, 1e-6), most=14):
    x = _LEFT + min(width - 1, round(tick / max(seconds, 1e-6) * width))
    sheet[top - 4 : bottom + 4, x] = (sheet[top - 4 : bottom + 4, x] * 0.55 + np.array(_GRID) * 0.45).astype(
      np.uint8
    )
    text = f"{start_s + tick:g} s"
    write(sheet, text, max(0, x - text_width(text, _SMALL) // 2), bottom + 8, FAINT, _SMALL)
