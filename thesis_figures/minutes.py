"""MuZero and PPO on MinAtar by minutes, without sticky actions: a part of Figure 5.1, for README.md.

python -m thesis_figures.minutes
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from experiments.minatar_vs_ppo.runs import read_runs
from thesis_figures.drawing import AXES, MissingError, draw_agent, finish, legend, main
from thesis_figures.figure_5_1 import AGENTS, GAMES


def draw(results: Path) -> plt.Figure:
  """Plots the runs on one core: three games above two, with the legend beside these."""
  groups = read_runs(results)
  figure, grid = plt.subplots(2, 3, figsize=(9, 5.6), layout="constrained")
  *axes, corner = grid.flat
  for axis, game in zip(axes, GAMES, strict=True):
    for agent in AGENTS:
      if timed := [run for run in groups.get((agent, "a", game), ()) if run.has_minutes]:
        draw_agent(axis, timed, "wall_s")
    finish(axis, title=game.replace("_", " ").title())
  if not any(axis.lines for axis in axes):
    raise MissingError("no results; run `moozi sweep experiments/minatar_vs_ppo/minatar_vs_ppo.yaml`")
  for row in grid:
    row[0].set_ylabel("return")
  figure.supxlabel(AXES["wall_s"][0], fontsize=11)
  corner.set_axis_off()
  legend(figure, corner)
  return figure


if __name__ == "__main__":
  sys.exit(main(draw, "minutes", __doc__))
