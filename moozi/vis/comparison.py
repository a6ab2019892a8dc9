"""Draws a comparison of runs as a figure and as an HTML page, from the result of `comparison_data`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moozi.core.text import one_cell
from moozi.io.atomic_write import atomic_path, write_text
from moozi.vis.report import make_page

if TYPE_CHECKING:
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure

CENTER_NAMES = {"iqm": "interquartile mean", "mean": "mean"}
AXIS_LABELS = {"env_steps": "environment steps (millions)", "minutes": "wall time of training (minutes)"}
_SCALES = {"env_steps": 1e6, "minutes": 1.0}
# Colors of Okabe and Ito (2008), with a dark yellow for their yellow. The line styles differ too.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#000000")
_MAX_NAME = 60  # characters of a name in the legend
_DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


def comparison_figure(data: Mapping[str, Any]) -> "Figure":
  """Returns a figure with a row per task: return over environment steps, and over minutes.

  A thin line is one seed. A thick line is the mean or interquartile mean over seeds, and its band, if there
  are several seeds, is the 95% bootstrap interval.
  """
  from matplotlib.figure import Figure
  from matplotlib.layout_engine import ConstrainedLayoutEngine

  tasks = data["tasks"]
  height = 0.6 + 3.6 * len(tasks)
  figure = Figure(
    (11, height), dpi=110, layout=ConstrainedLayoutEngine(rect=(0, 0.3 / height, 1, 1 - 0.3 / height))
  )
  axes = figure.subplots(len(tasks), 2, squeeze=False)
  for row, task in zip(axes, tasks, strict=True):
    for axis, key in zip(row, AXIS_LABELS, strict=True):
      _draw(axis, task, key)
    row[0].set_title(one_cell(str(task["name"])[:120]), loc="left", fontsize="medium", parse_math=False)
    row[0].set_ylabel("return in evaluation")
    row[1].legend(fontsize="small", frameon=False)
  figure.text(0.01, 0.0, legend_note(data), fontsize="small", va="bottom", wrap=True)
  return figure


def _draw(axis: "Axes", task: Mapping[str, Any], key: str) -> None:
  scale = _SCALES[key]
  for i, group in enumerate(task["groups"]):
    style: dict[str, Any] = {"color": _COLORS[i % len(_COLORS)]}
    dashes = _DASHES[i % len(_DASHES)]
    band, count = group["bands"][key], len(group["runs"])
    for run in group["runs"]:
      dots = "." if len(run[key]) == 1 else None
      axis.plot([x / scale for x in run[key]], run["returns"], linewidth=0.8, alpha=0.4, marker=dots, **style)
    x = [value / scale for value in band["x"]]
    name = one_cell(group["name"])
    name = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
    # matplotlib hides labels that start with "_", and reads "$" as mathematics.
    label = f" {name}, {f'{count} seeds' if count > 1 else '1 seed: no interval'}".replace("$", r"\$")
    axis.plot(x, band["center"], linewidth=2, linestyle=dashes, label=label, **style)
    if band["low"] is not None:
      axis.fill_between(x, band["low"], band["high"], alpha=0.18, linewidth=0, color=style["color"])
  axis.set_xlabel(AXIS_LABELS[key])
  axis.grid(alpha=0.3)


def legend_note(data: Mapping[str, Any]) -> str:
  """Returns a sentence that explains the lines and bands of the figure."""
  center = CENTER_NAMES[data["center"]]
  return f"Thin: each seed. Thick: {center} over seeds. Band, {data['interval']}"


def write_figure(path: Path, figure: "Figure") -> None:
  """Writes a figure as a PNG file, atomically."""
  with atomic_path(path) as partial:
    figure.savefig(partial, format="png")


def write_comparison_page(path: Path, data: Mapping[str, Any]) -> None:
  """Writes the HTML page of a comparison atomically. The page needs no server or network."""
  about = {"center_name": CENTER_NAMES[data["center"]], "note": legend_note(data)}
  page = make_page(
    "Comparison", {**data, **about}, "compare.html", ("charts.js", "compare.js"), ("page.css", "compare.css")
  )
  write_text(path, page)
