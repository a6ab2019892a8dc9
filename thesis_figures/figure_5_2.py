"""Figure 5.2: Breakout without and with sticky actions, MuZero and PPO.

    python -m thesis_figures.figure_5_2

Lines show the evaluations during training, and dots the seeds' figures (as in figure 5.1). On the right are
the runs under MinAtar's own protocol. Dotted lines show published results: gymnax's PPO without sticky
actions, and the final return of AC(λ) with sticky actions.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from experiments.minatar_vs_ppo.runs import Run, read_runs, select
from thesis_figures.drawing import (
  MissingError,
  draw_agent,
  draw_gymnax,
  draw_published,
  finish,
  last_step,
  main,
)
from thesis_figures.figure_5_1 import AGENTS

TITLES = {"a": "no sticky actions", "b": "sticky actions, probability 0.1, no cut-off"}


def draw(results: Path) -> plt.Figure:
  """Plots the runs without sticky actions on the left and with them on the right, each on its own scale."""
  groups = read_runs(results)
  found: dict[str, list[list[Run]]] = {
    protocol: [own for agent in AGENTS if (own := select(groups, agent, protocol).get("breakout"))]
    for protocol in TITLES
  }
  if not all(found.values()):
    raise MissingError(
      "no result on breakout; run `moozi sweep experiments/minatar_vs_ppo/minatar_vs_ppo.yaml`"
    )
  figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
  for axis, (protocol, own) in zip(axes, found.items(), strict=True):
    for runs in own:
      draw_agent(axis, runs, "env_steps")
    if protocol == "a":
      draw_gymnax(axis, "breakout", max(map(last_step, own)))
    else:
      draw_published(axis, "AC(λ) of MinAtar", "breakout")
    finish(axis, "env_steps", TITLES[protocol])
    axis.legend(frameon=False, fontsize=9)
  axes[0].set_ylabel("return, evaluation episodes")
  figure.suptitle("MinAtar Breakout (package minatar)")
  return figure


if __name__ == "__main__":
  sys.exit(main(draw, "figure_5_2", __doc__))
