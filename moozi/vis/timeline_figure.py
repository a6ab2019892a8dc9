"""Draws a run's timeline as in the thesis, Figure 4.5: a row per actor, colored by the kinds of span."""

import io
from collections.abc import Sequence

import numpy as np

from moozi.core.actor_report import Stretch, Timeline, ends, idle_share, shares
from moozi.core.text import printable

_COLUMNS, _ROW_PIXELS = 1200, 32
# Those from `update` to `reanalyze`, except `inference`, are colors of Okabe and Ito (2008).
_COLORS = {
  "update": "#e69f00",
  "segment": "#56b4e9",
  "inference": "#7b3294",
  "sample": "#009e73",
  "add": "#cc79a7",
  "priorities": "#f0e442",
  "evaluation": "#d55e00",
  "reanalyze": "#0072b2",
  "positions": "#8fbf72",
  "write back": "#b492dc",
  "publish": "#a06a3c",
  "checkpoint": "#000000",
}
_OTHER_COLORS = ("#5f9ea0", "#c08070", "#8080a0")
_IDLE = "#dcdce2"


def timeline_png(timeline: Timeline, title: str, start_s: float = 0.0) -> bytes:
  """Draws a timeline, and returns it as PNG bytes.

  In each pixel column of an actor's row, the height of a color is the share of time in one kind of span. Grey
  is idle time; white is time that the actor did not report. The time axis starts at `start_s`.
  """
  from matplotlib.colors import to_rgb
  from matplotlib.figure import Figure
  from matplotlib.patches import Patch

  begin_s, end_s = ends(timeline)
  edges = np.linspace(begin_s, max(end_s, begin_s + 1e-6), _COLUMNS + 1)
  x = edges - begin_s + start_s
  colors = {**_colors(timeline), "idle": _IDLE}
  palette = np.array([*map(to_rgb, colors.values()), (1.0, 1.0, 1.0)])
  heights = (np.arange(_ROW_PIXELS)[::-1, None] + 0.5) / _ROW_PIXELS
  figure = Figure((14, 1.6 + 0.36 * len(timeline)), dpi=100, layout="constrained")
  axes = figure.add_subplot()
  for row, stretches in enumerate(timeline.values()):
    parts = column_shares(stretches, edges)
    known = _coverage(edges, [(s.since_s, s.until_s) for s in stretches])
    parts["idle"] = np.maximum(0.0, known - sum(parts.values(), np.zeros(_COLUMNS)))
    tops = np.cumsum([parts.get(kind, np.zeros(_COLUMNS)) for kind in colors], axis=0)
    image = palette[(tops[:, None] <= heights).sum(axis=0)]
    axes.imshow(image, extent=(x[0], x[-1], row + 0.4, row - 0.4), aspect="auto", interpolation="nearest")
    axes.text(
      1.005, row, f"{idle_share(stretches):.1%} idle", transform=axes.get_yaxis_transform(), va="center"
    )
  axes.set(xlim=(x[0], x[-1]), ylim=(len(timeline) - 0.4, -0.6), xlabel="seconds")
  axes.set_title(printable(title[:160]), loc="left", parse_math=False)
  axes.set_yticks(range(len(timeline)), list(timeline), parse_math=False)
  axes.tick_params(axis="y", length=0)
  axes.spines[["top", "left", "right"]].set_visible(False)
  handles = [Patch(color=color, label=kind) for kind, color in colors.items()]
  legend = figure.legend(handles=handles, loc="outside lower left", ncols=8, frameon=False)
  for text in legend.get_texts():
    text.set_parse_math(False)
  out = io.BytesIO()
  figure.savefig(out, format="png")
  return out.getvalue()


def column_shares(stretches: Sequence[Stretch], edges: np.ndarray) -> dict[str, np.ndarray]:
  """Returns, for each kind of span, the share of each time interval that its spans fill: an array [n].

  `edges` [n + 1] are the bounds of the intervals (the columns of the picture).
  """
  spans = [span for stretch in stretches for span in stretch.spans]
  kinds = dict.fromkeys(span.name for span in spans)
  return {kind: _coverage(edges, [(s.start_s, s.end_s) for s in spans if s.name == kind]) for kind in kinds}


def _coverage(edges: np.ndarray, intervals: Sequence[tuple[float, float]]) -> np.ndarray:
  """Returns the share [n] of each column that `intervals` cover; they are sorted and do not overlap."""
  bounds = np.array(intervals, np.float64).reshape(-1, 2)
  if not len(bounds):
    return np.zeros(len(edges) - 1)
  # Seconds covered up to each bound; between bounds, they are linear in time.
  inside = np.repeat(np.cumsum(bounds[:, 1] - bounds[:, 0]), 2)
  inside[0::2] -= bounds[:, 1] - bounds[:, 0]
  out: np.ndarray = np.diff(np.interp(edges, bounds.ravel(), inside)) / np.maximum(np.diff(edges), 1e-12)
  return np.clip(out, 0.0, 1.0)


def _colors(timeline: Timeline) -> dict[str, str]:
  """Returns the color of each kind of span: first the kinds in _COLORS, then the others by name."""
  found = {name for stretches in timeline.values() for name in shares(stretches)}
  others = enumerate(sorted(found - _COLORS.keys()))
  fixed = {name: color for name, color in _COLORS.items() if name in found}
  return fixed | {name: _OTHER_COLORS[i % len(_OTHER_COLORS)] for i, name in others}
