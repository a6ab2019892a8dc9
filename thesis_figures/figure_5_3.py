"""Figure 5.3: return by number of simulations, at the milestones of one Space Invaders run.

    python -m thesis_figures.figure_5_3

Each point is one checkpoint with one number of simulations, evaluated in 30 episodes as in the thesis. The
left panel shows the return over environment steps. The right panel shows it over the number of simulations,
at four milestones, with 95% intervals over the episodes. If the results of the sweep have no such run, the
run is that of `one_seed`.
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.lib.results import Result, read_results
from experiments.minatar_vs_ppo.runs import HERE
from moozi.core.errors import UserError
from thesis_figures.drawing import draw_point, finish, main

GAME = "minatar:space_invaders"
MARKERS = "ovs^DPX*"
NUM_MILESTONES = 4
ONE_SEED = HERE / "one_seed"
"""The folder of the first runs."""


def draw(results: Path) -> plt.Figure:
  """Plots the return over training on the left and over simulations on the right, on one scale."""
  found = _by_simulations(results) or _by_simulations(ONE_SEED)
  if not found:
    raise UserError(
      "no result by number of simulations on space_invaders; run "
      "`moozi sweep experiments/minatar_vs_ppo/minatar_vs_ppo.yaml`"
    )
  if len(found) > 1:
    raise UserError(f"{found[0].path} and {found[1].path}: two results by number of simulations; remove one")
  (result,) = found
  evaluations = list(filter(_has_own_count, result.evaluations))
  counts = sorted({e["simulations"] for e in evaluations})
  steps = sorted({e["env_steps"] for e in evaluations})
  figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
  for count, color, marker in zip(counts, _shades(len(counts)), MARKERS, strict=False):
    own = sorted((e["env_steps"], e["return_mean"]) for e in evaluations if e["simulations"] == count)
    label = f"{count} simulation{'s' * (count > 1)}"
    left.plot([x / 1e6 for x, _ in own], [y for _, y in own], color=color, marker=marker, ms=5, label=label)
  finish(left, "env_steps", "over training")
  left.set_ylabel(f"return, {evaluations[0]['episodes']} evaluation episodes")
  left.legend(frameon=False, fontsize=8)
  chosen = [steps[i] for i in np.unique(np.linspace(0, len(steps) - 1, NUM_MILESTONES).round().astype(int))]
  for step, color, marker in zip(chosen, _shades(len(chosen)), MARKERS, strict=False):
    at_step = sorted((e for e in evaluations if e["env_steps"] == step), key=lambda e: e["simulations"])
    style: dict[str, Any] = {"color": color, "marker": marker}
    means = [e["return_mean"] for e in at_step]
    right.plot([e["simulations"] for e in at_step], means, label=f"{step / 1e6:.2f}M steps", **style, ms=4)
    for e in at_step:
      draw_point(right, e["simulations"], e["returns"], style)
  right.set_xscale("log", base=2)
  right.set_xticks(counts, [str(count) for count in counts])
  right.set_xlabel("simulations of each search")
  right.set_title("over simulations", fontsize=10)
  right.grid(alpha=0.3)
  right.legend(frameon=False, fontsize=8)
  cap = result.config.env.kwargs["max_episode_steps"]
  figure.suptitle(
    f"MinAtar Space Invaders (package minatar, no sticky actions, {cap:,} steps): one run of MuZero"
  )
  return figure


def _by_simulations(folder: Path) -> list[Result]:
  return [
    r
    for r in read_results(folder)
    if (r.config.env.name, r.config.env.kwargs.get("sticky_action_prob")) == (GAME, 0)
    and any(map(_has_own_count, r.evaluations))
  ]


def _has_own_count(evaluation: dict[str, Any]) -> bool:
  return evaluation["simulations"] is not None


def _shades(count: int) -> list:
  """Returns colours from dark to light of a perceptually uniform map, without the palest."""
  return list(plt.get_cmap("viridis")(np.linspace(0.0, 0.85, count)))


if __name__ == "__main__":
  sys.exit(main(draw, "figure_5_3", __doc__))
