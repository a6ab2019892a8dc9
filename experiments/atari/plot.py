"""Draws the curves of the finished jobs: `python -m experiments.atari.plot` writes `results/curves.png`."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.atari.table import HERE
from experiments.lib.results import Result, finished


def label_of(result: Result) -> str:
  """Returns a job's name without its game."""
  return result.path.name.replace(f"_{result.game.lower()}_", "_")


def main() -> None:
  """Plots training returns and evaluations over minutes of wall time, with a panel for each game."""
  results = finished(HERE)
  games = list(dict.fromkeys(result.game for result in results))
  labels = list(dict.fromkeys(map(label_of, results)))
  figure, axes = plt.subplots(
    1, len(games), figsize=(3.4 * len(games), 3.4), layout="constrained", squeeze=False
  )
  colors = dict(zip(labels, matplotlib.color_sequences["tab10"], strict=False))
  for result in results:
    axis = axes[0, games.index(result.game)]
    for key, style in (("train/return_mean", "-"), ("test/return_mean", "o")):
      ticks = [tick for tick in result.ticks if tick.get(key) is not None]
      minutes = [tick["wall_s"] / 60 for tick in ticks]
      axis.plot(minutes, [tick[key] for tick in ticks], style, color=colors[label_of(result)], markersize=4)
  for axis, game in zip(axes[0], games, strict=True):
    axis.set_title(game)
    axis.set_xlabel("wall time (minutes)")
  axes[0, 0].set_ylabel("mean return")
  lines = [plt.Line2D([], [], color=color) for color in colors.values()]
  figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), fontsize="small")
  figure.savefig(HERE / "results" / "curves.png", dpi=110)


if __name__ == "__main__":
  main()
