"""Draws the curves of the finished jobs: `python -m experiments.atari.plot` writes `results/curves.png`."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.atari.sweep import HERE
from experiments.atari.table import finished


def main() -> None:
  """Plots the return while acting and in evaluation over minutes of training."""
  results = finished(HERE / "results")
  figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
  for result, color in zip(results, plt.get_cmap("tab10").colors, strict=False):
    for key, style in (("train/return_mean", "-"), ("test/return_mean", "o")):
      ticks = [tick for tick in result.ticks if tick.get(key) is not None]
      minutes = [tick["wall_s"] / 60 for tick in ticks]
      label = f"{result.path.name}, {'acting' if style == '-' else 'evaluation'}"
      axis.plot(minutes, [tick[key] for tick in ticks], style, color=color, markersize=4, label=label)
  axis.set_xlabel("wall time (minutes)")
  axis.set_ylabel("mean return")
  axis.legend()
  figure.savefig(HERE / "results" / "curves.png", dpi=110)


if __name__ == "__main__":
  main()
