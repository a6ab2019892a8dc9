"""Figure 5.1: MuZero and PPO on the five games of MinAtar.

    python -m thesis_figures.figure_5_1

Plots the return over environment steps and over wall time, for each protocol that has runs: without sticky
actions (a), and MinAtar's own (b). Lines show the evaluations during training: thin for each seed, thick
for the mean over seeds. A dot is a seed's figure, the mean over the run's last five milestones. The plots
over minutes have only runs on one core. The dotted line of (a) over steps is the published curve of
gymnax's PPO in gymnax's own environments. Missing runs are left out and reported. The thesis has four of
the games.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from experiments.minatar_vs_ppo.runs import PROTOCOLS, read_runs
from thesis_figures.drawing import MissingError, draw_agent, draw_gymnax, finish, last_step, legend, main

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
AGENTS = ("muzero", "ppo_replica", "ppo_tuned")
TITLES = {"a": "no sticky actions, 1,000 steps", "b": "sticky actions, no cut-off"}


def draw(results: Path) -> plt.Figure:
  """Plots one game per column, and two rows for each protocol: over steps, and over minutes."""
  groups = read_runs(results)
  shown = [protocol for protocol in PROTOCOLS if any(key[1] == protocol for key in groups)]
  if not shown:
    raise MissingError("no results; run `moozi sweep experiments/minatar_vs_ppo/minatar_vs_ppo.yaml`")
  shape = (2 * len(shown), len(GAMES))
  figure, axes = plt.subplots(*shape, figsize=(15, 3 * shape[0]), layout="constrained")
  for row, protocol in enumerate(shown):
    for column, game in enumerate(GAMES):
      own = {agent: groups[agent, protocol, game] for agent in AGENTS if (agent, protocol, game) in groups}
      for agent in AGENTS:
        if agent not in own:
          print(f"left out: no run of {agent} on {game} under ({protocol})", file=sys.stderr)
      steps, minutes = axes[2 * row, column], axes[2 * row + 1, column]
      for runs in own.values():
        draw_agent(steps, runs, "env_steps")
        if timed := [run for run in runs if run.has_minutes]:
          draw_agent(minutes, timed, "wall_s")
      if own and protocol == "a":
        draw_gymnax(steps, game, max(map(last_step, own.values())))
      finish(steps, "env_steps", game.replace("_", " "))
      finish(minutes, "wall_s")
    for axis in axes[2 * row : 2 * row + 2, 0]:
      axis.set_ylabel(f"return ({protocol}: {TITLES[protocol]})", fontsize=8)
  legend(figure)
  figure.suptitle("MinAtar (package minatar): MuZero and PPO")
  return figure


if __name__ == "__main__":
  sys.exit(main(draw, "figure_5_1", __doc__))
