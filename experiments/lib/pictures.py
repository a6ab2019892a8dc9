"""Draws the pictures of experiments from their committed results.

    python -m experiments.lib.pictures             # all pictures
    python -m experiments.lib.pictures corridor    # those of an experiment

`experiments/NAME/plot.py`, or `table.py` of an experiment without it, may have `PICTURES`: functions that
return a figure, by the path of its PNG file in the experiment's folder. The file holds a digest of what the
figure shows (`digest_of`). A test draws each figure again and compares the digests.
"""

import argparse
import dataclasses
import hashlib
import importlib
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from experiments.lib.command import command
from experiments.lib.tables import EXPERIMENTS
from moozi.core.errors import UserError
from moozi.experiments.comparison import training_seconds
from moozi.io.atomic_write import atomic_path
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import read_run_config

if TYPE_CHECKING:
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure

Pictures = Mapping[str, "Callable[[], Figure]"]
Points = tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]
"""The x and y of N points."""

DATA = "Data"
"""The key of a PNG's metadata with the digest of what it shows."""

EVALUATION = "test/return_mean"
TRAINING = "train/return_mean"

AXES = {
  "env_steps": ("environment steps (millions)", 1e6),
  "thousand_steps": ("environment steps (thousands)", 1e3),
  "wall_s": ("wall time of training (minutes)", 60.0),
}
"""The label of a horizontal axis, and what environment steps or seconds are divided by."""

# Colours of Okabe and Ito, safe for colour-blind readers, without their yellow; line styles differ as well.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#56B4E9", "#000000")
_DASHES: tuple[Any, ...] = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), ":", (0, (1, 1)))
_MARKERS = "os^Dv*P"
_WIDTH = 7.0  # inches, of 100 pixels
_NUM_COLORS = 128  # of a PNG file


def runs_of(experiment: Path, variant: str) -> list[Path]:
  """Returns the folders of a variant's committed runs, by seed. Raises UserError: there are none."""
  if found := sorted((experiment / "results").glob(f"{variant}_seed*")):
    return found
  raise UserError(f"{experiment}: no results of {variant}")


def ticks_of(run: Path) -> list[dict[str, Any]]:
  """Returns the metrics of a run, one dict per tick."""
  return read_metrics(run / "metrics.jsonl")


def over_steps(run: Path, key: str = EVALUATION) -> Points:
  """Returns a metric of a run over environment steps; of two values at one step, the later one."""
  return _points(ticks_of(run), key)


def over_seconds(run: Path, key: str = EVALUATION) -> Points:
  """Returns a metric of a run over seconds of training, without evaluations."""
  ticks = ticks_of(run)
  steps, values = _points(ticks, key)
  seconds = training_seconds(ticks, read_run_config(run / "config.yaml"), steps)
  return np.maximum.accumulate(seconds), values


def points_of(
  experiment: Path,
  variants: Sequence[str] | Mapping[str, str],
  key: str = EVALUATION,
  over: Callable[[Path, str], Points] = over_steps,
) -> dict[str, list[Points]]:
  """Returns a metric of the runs of variants, by label; a sequence of variants has their names as labels.

  Raises: UserError: a variant has no committed runs.
  """
  labels = variants if isinstance(variants, Mapping) else dict(zip(variants, variants, strict=True))
  return {label: [over(run, key) for run in runs_of(experiment, name)] for label, name in labels.items()}


def _points(ticks: Sequence[Mapping[str, Any]], key: str) -> Points:
  found: dict[float, float] = {}
  for tick in ticks:
    if tick.get(key) is not None:
      steps = tick["env_steps"]
      found[tick.get("test/at_env_steps", steps) if key.startswith("test/") else steps] = tick[key]
  known = sorted(found)
  return np.array(known, np.float64), np.array([found[at] for at in known], np.float64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
  """What `curves` draws in one pair of axes.

  Attributes:
    curves: the points of the runs, by label.
    x: a key of `AXES`; the points have steps or seconds.
    y: the label of the vertical axis.
    title: text above the axes.
    dots: points without lines, by label; those of a label of `curves` have its color.
    levels: horizontal lines, by label.
    marks: texts at vertical lines, by x.
    marker: the marker at the points of curves.
    is_log: whether the horizontal axis is logarithmic.
    has_means: whether a label with several runs has a thick line at their mean.
  """

  curves: Mapping[str, Sequence[Points]]
  x: str = "env_steps"
  y: str = "return in evaluation"
  title: str = ""
  dots: Mapping[str, Sequence[Points]] = dataclasses.field(default_factory=dict)
  levels: Mapping[str, float] = dataclasses.field(default_factory=dict)
  marks: Mapping[float, str] = dataclasses.field(default_factory=dict)
  marker: str = ""
  is_log: bool = False
  has_means: bool = True

  @property
  def labels(self) -> list[str]:
    return list(dict.fromkeys([*self.curves, *self.dots]))


def curves(*panels: Panel, columns: int = 2, height: float = 3.0, is_shared: bool = True) -> "Figure":
  """Returns a figure of panels, whose curves `draw_runs` plots.

  Args:
    columns: the largest number of panels in a row.
    height: the height of a row in inches.
    is_shared: whether a label has one color in all panels, and one legend; each panel has its own otherwise.
  """
  from matplotlib.figure import Figure

  columns = min(columns, len(panels))
  rows = -(-len(panels) // columns)
  figure = Figure((_WIDTH, 0.5 + height * rows), layout="constrained")
  axes = figure.subplots(rows, columns, squeeze=False)
  for axis in axes.flat[len(panels) :]:
    axis.remove()
  common = list(dict.fromkeys(label for panel in panels for label in panel.labels))
  for axis, panel in zip(axes.flat, panels, strict=False):
    _draw_panel(axis, panel, common if is_shared else panel.labels)
    axis.xaxis.label.set_size("medium" if columns < 3 else "x-small")
    if not is_shared:
      axis.legend(frameon=False, fontsize="small")
  if is_shared:
    _legend_below(figure, 4 if max(map(len, common)) < 20 else 2)
  return figure


def _draw_panel(axis: "Axes", panel: Panel, labels: Sequence[str]) -> None:
  """Draws a panel; the place of a label in `labels` gives its color."""
  text, scale = AXES[panel.x]
  for number, label in enumerate(labels):
    color = COLORS[number % len(COLORS)]
    if runs := [(x / scale, y) for x, y in panel.curves.get(label, ()) if len(x)]:
      dashes = _DASHES[number % len(_DASHES)]
      style: dict[str, Any] = {"color": color, "linestyle": dashes, "marker": panel.marker, "markersize": 3}
      draw_runs(axis, runs, label, has_mean=panel.has_means, **style)
    for place, (x, y) in enumerate(panel.dots.get(label, ())):
      own = label if place == 0 and label not in panel.curves else None
      dot: dict[str, Any] = {"marker": _MARKERS[number % len(_MARKERS)], "markersize": 4.5}
      axis.plot(x / scale, y, linestyle="none", color=color, label=own, **dot)
  for label, level in panel.levels.items():
    axis.axhline(level, color="#555555", linestyle=":", linewidth=1.2, label=label)
  for at, words in panel.marks.items():
    axis.axvline(at / scale, color="#555555", linewidth=0.8, alpha=0.6)
    over = axis.get_xaxis_transform()
    axis.text(at / scale, 1.01, words, transform=over, ha="center", fontsize="x-small")
  if panel.is_log:
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
  if panel.title:
    axis.set_title(panel.title, fontsize="medium")
  axis.set_xlabel(text)
  axis.set_ylabel(panel.y)
  axis.grid(alpha=0.3)


def draw_runs(
  axis: "Axes", runs: Sequence[Points], label: str, *, has_mean: bool = True, **style: Any
) -> None:
  """Plots each run as a thin line, and the mean of the runs as a thick one where all have points.

  A single run, and runs without their mean, are lines of ordinary width.
  """
  if len(runs) == 1 or not has_mean:
    for place, points in enumerate(runs):
      axis.plot(*points, label=None if place else label, **style)
    return
  for x, y in runs:
    axis.plot(x, y, **style | {"alpha": 0.35, "linewidth": 0.8})
  grid = np.linspace(max(x[0] for x, _ in runs), min(x[-1] for x, _ in runs), 200)
  mean = np.mean([np.interp(grid, x, y) for x, y in runs], axis=0)
  axis.plot(grid, mean, label=label, **style | {"linewidth": 2, "marker": ""})


def _legend_below(figure: "Figure", columns: int) -> None:
  """Adds one legend below the axes, with each label once."""
  found: dict[str, Any] = {}
  for axis in figure.axes:
    for line, label in zip(*axis.get_legend_handles_labels(), strict=True):
      found.setdefault(label, line)
  if found:
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(len(found), columns)}
    figure.legend(found.values(), found.keys(), frameon=False, fontsize="small", **place)


def dots(
  panels: Mapping[str, Mapping[str, Sequence[float]]],
  x: str,
  legend: tuple[str, str] = ("a seed", "their mean"),
  *,
  center: Callable[[Sequence[float]], Any] = np.mean,
  level: float | None = None,
  is_log: bool = False,
) -> "Figure":
  """Returns a figure with a row for each label: a dot for each value, and a bar at their center.

  Args:
    panels: the values by label, by the title of the panel; a label that a panel lacks has an empty row there.
    x: the label of the horizontal axes.
    legend: what a dot and what a bar is.
    center: the function whose value the bar shows.
    level: the place of a vertical line.
    is_log: whether the horizontal axes are logarithmic.
  """
  from matplotlib.figure import Figure

  labels = list(dict.fromkeys(label for rows in panels.values() for label in rows))
  figure = Figure((_WIDTH, 1.1 + 0.27 * len(labels)), layout="constrained")
  axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
  for axis, (title, rows) in zip(axes, panels.items(), strict=True):
    for label, values in rows.items():
      place = labels.index(label)
      names = legend if place == 0 else (None, None)
      style: dict[str, Any] = {"linestyle": "none", "markeredgewidth": 0, "alpha": 0.7}
      axis.plot(values, [place] * len(values), "o", color=COLORS[0], markersize=6, label=names[0], **style)
      bar: dict[str, Any] = {"linestyle": "none", "markersize": 13, "markeredgewidth": 2.5}
      axis.plot([float(center(values))], [place], "|", color=COLORS[1], label=names[1], **bar)
    if level is not None:
      axis.axvline(level, color="#555555", linestyle=":", linewidth=1.2)
    if is_log:
      axis.set_xscale("log")
      axis.xaxis.set_major_formatter("{x:g}")
    axis.set_title(title, fontsize="medium")
    if len(panels) <= 2:
      axis.set_xlabel(x)
    axis.grid(alpha=0.3)
  if len(panels) > 2:  # narrow panels, whose labels would overlap
    axes[len(panels) // 2].set_xlabel(x)
  axes[0].set_yticks(range(len(labels)), labels)
  axes[0].invert_yaxis()
  _legend_below(figure, 2)
  return figure


def digest_of(figure: "Figure") -> str:
  """Returns the SHA-256 of a figure's titles, labels, texts and, to three digits, the points of its lines."""

  from matplotlib.ticker import FuncFormatter

  def digits(values: Any) -> list[str]:
    # Decimal ties are moved off the tie, because the last bit of a mean differs between processors.
    return [f"{x:.3g}" for x in np.asarray(values, np.float64) * (1 + 1e-9)]

  parts = []
  for axis in figure.axes:
    parts.append([axis.get_title(), axis.get_xlabel(), axis.get_ylabel()])
    parts += [
      [str(line.get_label()), *digits(line.get_xdata()), *digits(line.get_ydata())] for line in axis.lines
    ]
    texts = list(axis.texts)
    if isinstance(axis.yaxis.get_major_formatter(), FuncFormatter):  # of `set_yticks` with labels
      texts += axis.get_yticklabels()
    if any(words := [axis.get_title("left"), *(text.get_text() for text in texts)]):
      parts.append(words)
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def save(figure: "Figure", path: Path) -> None:
  """Writes a figure as a PNG file of at most 128 colors, with its digest."""
  import PIL.Image
  from PIL.PngImagePlugin import PngInfo

  drawn = io.BytesIO()
  figure.savefig(drawn, format="png")
  about = PngInfo()
  about.add_text(DATA, digest_of(figure))
  with PIL.Image.open(drawn) as image, atomic_path(path) as partial:
    image.convert("RGB").quantize(_NUM_COLORS).save(partial, format="png", optimize=True, pnginfo=about)


def pictures_of(name: str) -> Pictures:
  """Returns the functions that draw an experiment's pictures, by path in its folder."""
  for module in ("plot", "table"):
    if (EXPERIMENTS / name / f"{module}.py").exists():
      found: Any = importlib.import_module(f"experiments.{name}.{module}")
      return getattr(found, "PICTURES", {})
  return {}


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; all by default")
  options = parser.parse_args(arguments)
  known = sorted(path.parent.name for path in EXPERIMENTS.glob("*/README.md"))
  for name in options.names or known:
    if options.names and not (name in known and pictures_of(name)):
      raise UserError(f"{name}: has no pictures; choose from {', '.join(filter(pictures_of, known))}")
    for file, draw in pictures_of(name).items():
      save(draw(), EXPERIMENTS / name / file)
      print(f"experiments/{name}/{file}")
  return 0


if __name__ == "__main__":
  sys.exit(main())
