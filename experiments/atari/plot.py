"""Draws the curves of the finished jobs: `python -m experiments.atari.plot` writes `results/curves.png`."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.atari.sweep import HERE
from experiments.atari.table import finished
from experiments.lib.results import Result


def game_of(result: Result) -> str:
  return result.path.name.split("_")[-2]


def main() -> None:
  """Plots the return while acting and in evaluation over minutes of training, with a panel for each game."""
  results = finished(HERE / "results")
  games = list(dict.fromkeys(game_of(result) for result in results))
  figure, axes = plt.subplots(
    1, len(games), figsize=(3.4 * len(games), 3), layout="constrained", squeeze=False
  )
  for axis, game in zip(axes[0], games, strict=True):
    shown = [result for result in results if game_of(result) == game]
    for result, color in zip(shown, plt.get_cmap("tab10").colors, strict=False):
      for key, style in (("train/return_mean", "-"), ("test/return_mean", "o")):
        ticks = [tick for tick in result.ticks if tick.get(key) is not None]
        minutes = [tick["wall_s"] / 60 for tick in ticks]
        label = result.path.name if style == "-" else None
        axis.plot(minutes, [tick[key] for tick in ticks], style, color=color, markersize=4, label=label)
    axis.set_title(game.capitalize())
    axis.set_xlabel("wall time (minutes)")
    if len(shown) > 1:
      axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.25))  # below, where no dots are
  axes[0, 0].set_ylabel("mean return")
  figure.savefig(HERE / "results" / "curves.png", dpi=110)


if __name__ == "__main__":
  main()
