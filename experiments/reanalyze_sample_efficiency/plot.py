"""Plots the results of the sweep, one panel for each game.

    python -m experiments.reanalyze_sample_efficiency.plot

Writes results/curves.png: the return in evaluation over environment steps. Thin lines are seeds, thick lines
their mean. Evaluations have 10 episodes; the last one has 100.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from moozi.experiments.comparison import read_run

RESULTS = Path(__file__).parent / "results"
GAMES = ("breakout", "space_invaders")
COLORS = {
  "plain": "tab:gray",
  "reanalyze": "tab:blue",
  "plain_more": "tab:olive",
  "reanalyze_more": "tab:purple",
  "plain_uniform": "tab:brown",
  "plain_more_uniform": "tab:orange",
  "reanalyze_more_uniform": "tab:red",
}


def main() -> None:
  """Writes the figure."""
  figure, axes = plt.subplots(1, len(GAMES), figsize=(9, 3.4), layout="constrained")
  for axis, game in zip(axes, GAMES, strict=True):
    for variant, color in COLORS.items():
      runs = [read_run(path) for path in sorted(RESULTS.glob(f"{game}_{variant}_seed*"))]
      curves = [(run.env_steps, run.returns) for run in runs]
      for steps, returns in curves:
        axis.plot(steps / 1000, returns, color=color, alpha=0.35, linewidth=1)
      if curves:
        shortest = min(len(steps) for steps, _ in curves)
        mean = np.mean([returns[:shortest] for _, returns in curves], axis=0)
        axis.plot(curves[0][0][:shortest] / 1000, mean, color=color, linewidth=2, label=variant)
    axis.set(
      title=game,
      xlabel="environment steps, thousands",
      ylabel="return in evaluation",
    )
    axis.legend()
  figure.savefig(RESULTS / "curves.png", dpi=150)


if __name__ == "__main__":
  main()
