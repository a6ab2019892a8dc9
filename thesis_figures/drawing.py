"""The plot styles, functions and command line that the figures share."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from experiments.lib.pictures import AXES, DATA, digest_of, draw_runs
from experiments.minatar_vs_ppo.runs import LABELS, RESULTS, Run
from moozi.core.errors import UserError
from moozi.experiments.statistics import estimate
from moozi.io.plain_data import read_yaml

HERE = Path(__file__).resolve().parent
EXPERIMENT = HERE.parent / "experiments" / "minatar_vs_ppo"
GYMNAX = HERE.parent / "experiments" / "ppo_check" / "gymnax.yaml"
GYMNAX_RATE = "1e-3"  # as in config/ppo/minatar.yaml

# Colours of Okabe and Ito, safe for colour-blind readers; line styles and markers differ as well.
STYLES: dict[str, dict[str, Any]] = {
  "muzero": {"color": "#0072B2", "linestyle": "-", "marker": "o"},
  "ppo_replica": {"color": "#D55E00", "linestyle": "--", "marker": "s"},
  "ppo_tuned": {"color": "#009E73", "linestyle": "-.", "marker": "^"},
}
PUBLISHED: dict[str, Any] = {"color": "#555555", "linestyle": ":", "linewidth": 1.5}


class MissingError(UserError):
  """Raised if a result that a figure needs does not exist."""


def main(
  draw: Callable[[Path], plt.Figure], name: str, doc: str, arguments: Sequence[str] | None = None
) -> int:
  """Runs the command line of a figure; returns the exit status, which is 2 for a user's error.

  Args:
    draw: draws the figure from the folder of results.
    name: the name of the PNG file in this folder, without suffix.
    doc: the help text.
    arguments: the arguments of the command line; None uses those of the process.
  """
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
  parser.add_argument("--out", type=Path, default=HERE / f"{name}.png", help="the PNG file")
  options = parser.parse_args(arguments)
  try:
    figure = draw(options.results)
  except UserError as error:
    print(f"error: {name}: {error}", file=sys.stderr)
    return 2
  figure.savefig(options.out, dpi=130, metadata={DATA: digest_of(figure)})
  plt.close(figure)
  print(options.out)
  return 0


def legend(figure: plt.Figure, cell: plt.Axes | None = None) -> None:
  """Adds one legend with each label once: below the axes, or in the empty axis `cell`."""
  lines = {
    label: line for axis in figure.axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
  }
  if cell is not None:
    cell.legend(lines.values(), lines.keys(), loc="center", fontsize=12, frameon=False)
    return
  figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines), frameon=False)


def draw_agent(axis: plt.Axes, runs: Sequence[Run], x: str) -> None:
  """Plots an agent's returns in evaluation over `env_steps` or `wall_s`: each seed, and the seeds' mean.

  A marker at each run's last step shows the run's score (`Run.score`).
  """
  agent, scale = runs[0].agent, AXES[x][1]
  line_style = {key: STYLES[agent][key] for key in ("color", "linestyle")}
  lines = []
  for run in runs:
    steps, minutes, returns = run.curve()
    lines.append(((steps if x == "env_steps" else minutes * 60.0) / scale, returns))
  draw_runs(axis, lines, LABELS[agent], **line_style)
  style = {key: STYLES[agent][key] for key in ("color", "marker")}
  for run in runs:
    at = run.last_step if x == "env_steps" else float(run.result.wall_s_at([run.last_step])[0])
    axis.plot([at / scale], [run.score], linestyle="none", markersize=5, **style)


def draw_point(
  axis: plt.Axes, x: float, returns: Sequence[float], style: dict[str, Any], **more: Any
) -> None:
  """Plots the mean return of episodes with its 95% interval."""
  point = estimate([returns])
  error = [[point.mean - point.low], [point.high - point.mean]]
  axis.errorbar(
    [x],
    [point.mean],
    yerr=error,
    color=style["color"],
    marker=style["marker"],
    markersize=5,
    capsize=3,
    **more,
  )


def draw_published(axis: plt.Axes, agent: str, game: str) -> None:
  """Plots an agent's published return as a horizontal line, if there is one for the game."""
  (entry,) = [e for e in read_yaml(EXPERIMENT / "published.yaml") if e["agent"] == agent]
  value = entry["returns"].get(game)
  if value is None or isinstance(value, str):
    return
  steps = f" at {entry['env_steps'] / 1e6:g}M steps" if entry["env_steps"] else ""
  axis.axhline(float(np.mean(value)), label=f"{agent}{steps}, published", **PUBLISHED)


def draw_gymnax(axis: plt.Axes, game: str, until: float) -> None:
  """Plots the published curve of gymnax's PPO with learning rate `GYMNAX_RATE`, if the game has one.

  Args:
    axis: x in millions of environment steps.
    game: a game of MinAtar.
    until: the last environment step to plot.
  """
  published = read_yaml(GYMNAX)
  returns = published["returns"].get(game, {}).get(GYMNAX_RATE)
  if returns is not None:
    steps = published["period_env_steps"] * np.arange(1, len(returns) + 1)
    shown = steps <= until
    axis.plot(steps[shown] / 1e6, np.array(returns)[shown], label="PPO of gymnax, published", **PUBLISHED)


def last_step(runs: Sequence[Run]) -> int:
  """Returns the largest environment step of the runs' last checkpoints."""
  return max(run.last_step for run in runs)


def finish(axis: plt.Axes, x: str | None = None, title: str | None = None) -> None:
  """Adds labels and a grid, and starts both axes at 0."""
  if x is not None:
    axis.set_xlabel(AXES[x][0])
  if title is not None:
    axis.set_title(title, fontsize=10)
  axis.grid(alpha=0.3)
  axis.set_ylim(bottom=0)
  axis.set_xlim(left=0)
