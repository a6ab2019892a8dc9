"""Draws the curves of the finished jobs: `python -m experiments.atari.plot` writes `results/curves.png`."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.atari.sweep import HERE
from experiments.atari.table import finished
from experiments.lib.results import Result


def agent_and_game(result: Result) -> tuple[str, str]:
  """Returns a job's name without its game, and the game."""
  agent, game, seed = result.path.name.rsplit("_", 2)
  return f"{agent}_{seed}", game


def main() -> None:
  """Plots the return while acting and in evaluation over minutes of training, with a panel for each game."""
  results = finished(HERE / "results")
  agents, games = (list(dict.fromkeys(names)) for names in zip(*map(agent_and_game, results), strict=True))
  figure, axes = plt.subplots(
    1, len(games), figsize=(3.4 * len(games), 3.4), layout="constrained", squeeze=False
  )
  colors = dict(zip(agents, plt.get_cmap("tab10").colors, strict=False))
  for result in results:
    agent, game = agent_and_game(result)
    axis = axes[0, games.index(game)]
    for key, style in (("train/return_mean", "-"), ("test/return_mean", "o")):
      ticks = [tick for tick in result.ticks if tick.get(key) is not None]
      minutes = [tick["wall_s"] / 60 for tick in ticks]
      axis.plot(minutes, [tick[key] for tick in ticks], style, color=colors[agent], markersize=4)
  for axis, game in zip(axes[0], games, strict=True):
    axis.set_title(game.capitalize())
    axis.set_xlabel("wall time (minutes)")
  axes[0, 0].set_ylabel("mean return")
  lines = [plt.Line2D([], [], color=color) for color in colors.values()]
  figure.legend(lines, list(colors), loc="outside lower center", ncols=len(agents), fontsize="small")
  figure.savefig(HERE / "results" / "curves.png", dpi=110)


if __name__ == "__main__":
  main()
