"""Plots the committed runs: `python -m experiments.minatar_two_cores.plot`.

Reads `results/<name>/metrics.jsonl`, writes `results/curves.png`.
"""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from moozi.io.metrics import read_metrics

HERE = Path(__file__).parent


def points(ticks: list[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
  """Returns the x and y values of the ticks that contain y."""
  rows = [(tick[x], tick[y]) for tick in ticks if tick.get(y) is not None]
  return [row[0] for row in rows], [row[1] for row in rows]


def main() -> None:
  """Plots returns over environment steps and over wall time."""
  runs = {path.parent.name: read_metrics(path) for path in sorted(HERE.glob("results/*/metrics.jsonl"))}
  runs = {name: ticks for name, ticks in runs.items() if name.startswith("breakout")}
  figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
  for axis, (x, label, scale) in zip(
    axes,
    [("env_steps", "environment steps (millions)", 1e6), ("wall_s", "wall time (minutes)", 60)],
    strict=True,
  ):
    for color, (name, ticks) in zip(("#0072B2", "#D55E00", "#009E73", "#CC79A7"), runs.items(), strict=False):
      steps, returns = points(ticks, x, "train/return_mean")
      axis.plot([s / scale for s in steps], returns, color=color, label=f"{name}, acting, last 100 episodes")
      steps, returns = points(ticks, x, "test/return_mean")
      axis.plot([s / scale for s in steps], returns, "o", color=color, label=f"{name}, evaluation")
    axis.set_xlabel(label)
    axis.grid(alpha=0.3)
  axes[0].set_ylabel("return")
  axes[1].legend(frameon=False, loc="lower right")
  figure.suptitle("MinAtar Breakout (package minatar, no sticky actions, 1,000 steps), two cores")
  figure.savefig(HERE / "results" / "curves.png", dpi=110)


if __name__ == "__main__":
  main()
