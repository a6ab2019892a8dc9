"""Figure 5.2: Breakout without and with sticky actions, MooZi and PPO.

    python -m thesis_figures.figure_5_2

Lines show the evaluations during training. Points with 95% intervals show the last evaluation, of 100
episodes. Dotted lines show published results: gymnax's PPO without sticky actions, and the final return of
AC(λ) with sticky actions.
"""

import sys

import matplotlib.pyplot as plt

from experiments.lib.results import Result
from thesis_figures.drawing import curves_of, draw_agent, draw_gymnax, draw_published, finish, last_step, main

AGENTS = ("MooZi", "PPO")
PANELS = ((0.0, "no sticky actions"), (0.1, "sticky actions, probability 0.1"))


def draw(results: list[Result]) -> plt.Figure:
  """Plots the runs without sticky actions on the left and with them on the right, on one scale."""
  found = {
    (agent, sticky): curves_of(results, agent, "breakout", sticky) for sticky, _ in PANELS for agent in AGENTS
  }
  figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
  for axis, (sticky, title) in zip(axes, PANELS, strict=True):
    own = [found[agent, sticky] for agent in AGENTS]
    for results_of in own:
      draw_agent(axis, results_of, "env_steps")
    if sticky:
      draw_published(axis, "AC(λ) of MinAtar", "breakout")
    else:
      draw_gymnax(axis, "breakout", max(map(last_step, own)))
    finish(axis, "env_steps", title)
    axis.legend(frameon=False, fontsize=9)
  axes[0].set_ylabel("return, evaluation episodes")
  figure.suptitle("MinAtar Breakout (package minatar, 1,000 steps)")
  return figure


if __name__ == "__main__":
  sys.exit(main(draw, "figure_5_2", __doc__))
