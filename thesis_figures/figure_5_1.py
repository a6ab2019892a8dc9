"""Figure 5.1: MooZi and PPO on the five games of MinAtar, without sticky actions.

    python thesis_figures/figure_5_1.py

Return against environment steps and against wall time. Lines are the evaluations in the course of training,
points with 95% intervals the last one, of 100 episodes. The thesis has four of the games, and published PPO.
"""

import sys

import matplotlib.pyplot as plt
from drawing import curves_of, draw_agent, draw_published, finish, main

from moozi.experiments.results import Result

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
AGENTS = ("MooZi", "PPO")


def draw(results: list[Result]) -> plt.Figure:
  """Games from left to right; steps above, minutes below."""
  found = {(agent, game): curves_of(results, agent, game, 0.0) for game in GAMES for agent in AGENTS}
  figure, axes = plt.subplots(2, len(GAMES), figsize=(15, 6), layout="constrained")
  for column, game in enumerate(GAMES):
    for axis, x in zip(axes[:, column], ("env_steps", "wall_s"), strict=True):
      for agent in AGENTS:
        draw_agent(axis, found[agent, game], x)
      draw_published(axis, "PPO of gymnax", game)
      finish(axis, x, game.replace("_", " ") if x == "env_steps" else None)
  for axis in axes[:, 0]:
    axis.set_ylabel("return, evaluation episodes")
  lines = {
    label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
  }
  figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines), frameon=False)
  figure.suptitle("MinAtar (package minatar, no sticky actions): MooZi and PPO")
  return figure


if __name__ == "__main__":
  sys.exit(main(draw, "figure_5_1", __doc__))
