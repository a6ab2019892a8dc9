"""Figure 5.2: Breakout without and with sticky actions, MooZi and PPO.

    python thesis_figures/figure_5_2.py

Lines are the evaluations in the course of training, points with 95% intervals the last one, of 100 episodes;
across are final returns that others published: PPO of gymnax without sticky actions, AC(λ) of MinAtar with.
"""

import sys

import matplotlib.pyplot as plt
from drawing import curves_of, draw_agent, draw_published, finish, main

from moozi.experiments.results import Result

PANELS = (
  (0.0, "PPO of gymnax", "no sticky actions"),
  (0.1, "AC(λ) of MinAtar", "sticky actions, probability 0.1"),
)


def draw(results: list[Result]) -> plt.Figure:
  """Without on the left, with on the right, one scale."""
  found = {
    (agent, sticky): curves_of(results, agent, "breakout", sticky)
    for sticky, _, _ in PANELS
    for agent in ("MooZi", "PPO")
  }
  figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
  for axis, (sticky, rival, title) in zip(axes, PANELS, strict=True):
    draw_agent(axis, found["MooZi", sticky], "env_steps")
    draw_agent(axis, found["PPO", sticky], "env_steps")
    draw_published(axis, rival, "breakout")
    finish(axis, "env_steps", title)
    axis.legend(frameon=False, fontsize=9)
  axes[0].set_ylabel("return, evaluation episodes")
  figure.suptitle("MinAtar Breakout (package minatar, 1,000 steps)")
  return figure


if __name__ == "__main__":
  sys.exit(main(draw, "figure_5_2", __doc__))
