"""Figure 5.1: MooZi and PPO on the five games of MinAtar, without sticky actions.

    python -m thesis_figures.figure_5_1

Plots the return over environment steps and over wall time. Lines show the evaluations during training. Points
with 95% intervals show the last evaluation, of 100 episodes. The dotted line over steps is the published
curve of gymnax's PPO in gymnax's own environments. Missing runs are left out and reported. The thesis has
four of the games.
"""

import itertools
import sys

import matplotlib.pyplot as plt

from experiments.lib.results import Result
from moozi.core.errors import UserError
from thesis_figures.drawing import MissingError, curves_of, draw_agent, draw_gymnax, finish, last_step, main

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
AGENTS = ("MooZi", "PPO")


def draw(results: list[Result]) -> plt.Figure:
  """Plots one game per column, over steps in the top row and over minutes in the bottom row."""
  found: dict[tuple[str, str], list[Result]] = {}
  for key in itertools.product(AGENTS, GAMES):
    try:
      found[key] = curves_of(results, *key, 0.0)
    except MissingError as missing:
      print(f"left out: {missing}", file=sys.stderr)
  if not found:
    raise UserError("no results; run `python -m experiments.minatar_vs_ppo.sweep`")
  figure, axes = plt.subplots(2, len(GAMES), figsize=(15, 6), layout="constrained")
  for column, game in enumerate(GAMES):
    for axis, x in zip(axes[:, column], ("env_steps", "wall_s"), strict=True):
      own = [found[agent, game] for agent in AGENTS if (agent, game) in found]
      for results_of in own:
        draw_agent(axis, results_of, x)
      if own and x == "env_steps":
        draw_gymnax(axis, game, max(map(last_step, own)))
      finish(axis, x, game.replace("_", " ") if x == "env_steps" else None)
  for axis in axes[:, 0]:
    axis.set_ylabel("return, evaluation episodes")
  lines = {
    label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
  }
  figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines), frameon=False)
  figure.suptitle("MinAtar (package minatar, no sticky actions): MooZi and PPO")
  return figure


if __name__ == "__main__":
  sys.exit(main(draw, "figure_5_1", __doc__))
