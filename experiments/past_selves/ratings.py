"""Plays an arena of the milestones of all complete runs; draws their ratings over minutes of training.

    python -m experiments.past_selves.ratings --games 40

The last checkpoint of a run counts as a milestone. Every milestone plays every other one, MCTS with 100
simulations, and random play, which has rating 0. The games are in `results/arena` and continue where they
stopped. Writes `results/ratings.json` and `results/ratings.png`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.lib.command import command
from experiments.lib.pictures import COLORS, save
from experiments.lib.results import RUNS, sweep_of
from experiments.lib.tables import markdown_table, with_interval
from moozi.core.errors import UserError
from moozi.experiments.jobs import progress_of
from moozi.experiments.results import write_json
from moozi.io.checkpoints import find_checkpoint, list_milestones
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
MILESTONE_STEPS = 200_000
VARIANTS = ("self_play", "past_selves")


def milestones(runs: Path) -> dict[str, dict[str, Any]]:
  """Returns {player's name: variant, seed, steps and minutes} of the milestones of the complete runs.

  Raises: UserError: a run has other settings than its job.
  """
  out = {}
  for job in sweep_of(HERE).jobs:
    if not progress_of(job, runs)[1]:
      continue
    path = runs / job.name
    run = RunDirectory.open(path)
    ticks = read_metrics(run.metrics_path)
    found = {info.env_steps: info for info in list_milestones(run.checkpoints_path)}
    last = find_checkpoint(run.checkpoints_path, "last")
    for env_steps, info in (found | {last.env_steps: last}).items():
      seconds = np.interp(
        env_steps, [tick["env_steps"] for tick in ticks], [tick["wall_s"] for tick in ticks]
      )
      # Relative, so that the arena continues in another clone.
      name = f"run:{os.path.relpath(path)}@{info.lasting_name}"
      steps = round(env_steps / MILESTONE_STEPS) * MILESTONE_STEPS if env_steps in found else env_steps
      own = {"env_steps": steps, "minutes": round(float(seconds) / 60, 1)}
      out[name] = {"variant": job.variant, "seed": job.seed} | own
  return out


def play(games: int, runs: Path, out: Path) -> list[dict[str, Any]]:
  """Plays the arena; returns a row for each milestone with its rating and interval.

  Raises: UserError: no run is complete, or the arena cannot be played.
  """
  import moozi

  known = milestones(runs)
  if not known:
    raise UserError(
      f"{runs}: no complete run; moozi sweep experiments/past_selves/past_selves.yaml trains them"
    )
  players = [*known, "mcts:100", "random"]
  found = moozi.arena("open_spiel:connect_four", players, games=games, out=out / "arena")
  rated = {player["name"]: player for player in found.to_json()["players"]}
  keys = ("rating", "low", "high", "score")
  rows = [own | {key: rated[name][key] for key in keys} for name, own in known.items()]
  others = [{"variant": name} | {key: rated[name][key] for key in keys} for name in ("mcts:100", "random")]
  return rows + others


def table(rows: Sequence[dict[str, Any]]) -> str:
  """Returns the ratings in Markdown: a row for each run, columns for its milestones and its end."""
  trained = [row for row in rows if "seed" in row]
  steps = sorted({row["env_steps"] for row in trained if row["env_steps"] % MILESTONE_STEPS == 0})
  lines = []
  for name, seed in dict.fromkeys((row["variant"], row["seed"]) for row in trained):
    own = {row["env_steps"]: row for row in trained if (row["variant"], row["seed"]) == (name, seed)}
    last = own[max(own)]
    ended = f"{last['minutes']:.0f} min, {last['env_steps']:,} steps"
    lines.append(
      [name, str(seed), *(_rating(own[at]) if at in own else "–" for at in steps), _rating(last), ended]
    )
  return markdown_table(["run", "seed", *(f"{at:,} steps" for at in steps), "at the end", "trained"], lines)


def _rating(row: dict[str, Any]) -> str:
  return with_interval(row["rating"], row["low"], row["high"])


def draw(rows: Sequence[dict[str, Any]]) -> "Figure":
  """Draws the ratings over minutes of training; a line for each run."""
  from matplotlib.figure import Figure

  figure = Figure((7, 4), layout="constrained")
  axis = figure.subplots()
  for variant, color in zip(VARIANTS, COLORS, strict=False):
    for seed in (0, 1):
      own = [row for row in rows if (row["variant"], row.get("seed")) == (variant, seed)]
      if own:
        ratings = [row["rating"] for row in own]
        errors = [[row["rating"] - row["low"] for row in own], [row["high"] - row["rating"] for row in own]]
        minutes = [row["minutes"] for row in own]
        label = f"{variant}, seed {seed}"
        style = "s--" if seed else "o-"
        axis.errorbar(minutes, ratings, errors, fmt=style, color=color, capsize=3, label=label)
  (mcts,) = [row["rating"] for row in rows if row["variant"] == "mcts:100"]
  axis.axhline(mcts, color="#888888", lw=0.8, ls="--", label="MCTS, 100 simulations")
  axis.set_xlabel("minutes of training")
  axis.set_ylabel("rating (Elo; random play is 0), 95%")
  axis.grid(alpha=0.3)
  axis.legend(frameon=False, loc="lower right")
  return figure


@command
def main(
  arguments: Sequence[str] | None = None, runs: Path = RUNS / "past_selves", out: Path = HERE / "results"
) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--games", type=int, default=40, help="number of games of each pair (40)")
  options = parser.parse_args(arguments)
  rows = play(options.games, runs, out)
  write_json(out / "ratings.json", rows)
  save(draw(rows), out / "ratings.png")
  print(table(rows))
  return 0


if __name__ == "__main__":
  sys.exit(main())
