"""Draws a run's curves over environment steps with matplotlib."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moozi.core.text import printable
from moozi.vis.report import curve_data

if TYPE_CHECKING:
  from matplotlib.figure import Figure

# The metrics of each figure; a name that ends in a slash is a prefix.
_FIGURES: dict[str, tuple[str, ...]] = {
  "return": ("train/return_mean", "test/return_mean"),
  "loss": ("loss/",),
  "speed": ("system/env_steps_per_s", "system/updates_per_s"),
}


def curve_figures(ticks: Sequence[Mapping[str, Any]], title: str) -> "dict[str, Figure]":
  """Returns the figures "return", "loss" and "speed", drawn from the ticks of metrics.jsonl."""
  curves = curve_data(ticks)
  return {name: _figure(curves, name, wanted, title) for name, wanted in _FIGURES.items()}


def _figure(
  curves: Mapping[str, Mapping[str, list[float]]], ylabel: str, wanted: Sequence[str], title: str
) -> "Figure":
  from matplotlib.figure import Figure

  figure = Figure((7, 4), dpi=100, layout="constrained")
  axes = figure.subplots()
  for name, curve in curves.items():
    if any(name == w or (w.endswith("/") and name.startswith(w)) for w in wanted):
      axes.plot(curve["x"], curve["y"], marker="." if len(curve["x"]) < 30 else None, label=name)
  axes.set_title(printable(title[:120]), parse_math=False)
  axes.set_xlabel("environment steps")
  axes.set_ylabel(ylabel)
  axes.grid(alpha=0.3)
  if axes.lines:
    axes.legend(fontsize="small")
  return figure
