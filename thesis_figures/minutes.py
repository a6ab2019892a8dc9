"""MooZi and PPO on MinAtar by minutes, without sticky actions: one row of Figure 5.1, for README.md.

python -m thesis_figures.minutes
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from experiments.minatar_vs_ppo.runs import read_runs
from thesis_figures.drawing import MissingError, draw_agent, finish, legend, main
from thesis_figures.figure_5_1 import AGENTS, GAMES


def draw(results: Path) -> plt.Figure:
  """Plots one game per column, with the runs on one core."""
  groups = read_runs(results)
  figure, axes = plt.subplots(1, len(GAMES), figsize=(15, 3.2), layout="constrained")
  for axis, game in zip(axes, GAMES, strict=True):
    for agent in AGENTS:
      if timed := [run for run in groups.get((agent, "a", game), ()) if run.has_minutes]:
        draw_agent(axis, timed, "wall_s")
    finish(axis, "wall_s", game.replace("_", " "))
  if not any(axis.lines for axis in axes):
    raise MissingError("no results; run `moozi sweep experiments/minatar_vs_ppo/minatar_vs_ppo.yaml`")
  axes[0].set_ylabel("return")
  legend(figure)
  return figure


if __name__ == "__main__":
  sys.exit(main(draw, "minutes", __doc__))
