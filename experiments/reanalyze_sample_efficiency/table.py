"""The table and the picture of the runs with and without reanalyze."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.lib.pictures import Panel, Points, curves, over_steps
from experiments.lib.results import Result
from experiments.lib.tables import markdown_table, read_runs

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent

CHANGES = ("uniform",)
"""Suffixes of variants with one further setting."""

COLUMNS = (
  "game",
  "variant",
  "return at the end, 100 evaluation episodes, by seed",
  "mean",
  "ratio to plain",
  "ratio to plain with as many updates",
  "training return, last 100 episodes",
  "mean of all evaluations",
  "search age, updates",
  "wall s",
)


def means_of() -> dict[tuple[str, str], float]:
  """Returns the mean returns at the end, by game and variant."""
  found = read_runs(HERE)
  return {
    _split(name): float(np.mean([result.summary["test_return_mean"] for result in results]))
    for name, results in found.items()
  }


def _split(name: str) -> tuple[str, str]:
  game = "breakout" if name.startswith("breakout") else "space_invaders"
  return game, name.removeprefix(f"{game}_")


def table() -> str:
  """Returns a Markdown row for each game and variant."""
  rows, means = [], means_of()
  for name, results in read_runs(HERE).items():
    game, variant = _split(name)
    base, _, change = variant.rpartition("_")
    # If no plain run has this change, compare with the plain run without it.
    controls = [v.replace("reanalyze", "plain") for v in (variant, base if change in CHANGES else variant)]
    same = next((means[game, control] for control in controls if (game, control) in means), None)
    mean = means[game, variant]
    shares = [f"{mean / x:.2f}" if x else "–" for x in (means.get((game, "plain")), same)]

    def average(key: str, of_run: Callable[[list[float]], Any], results: Sequence[Result] = results) -> float:
      return float(np.mean([of_run([t[key] for t in r.ticks if key in t]) for r in results]))

    returns = ", ".join(f"{result.summary['test_return_mean']:.1f}" for result in results)
    acting, course = average("train/return_mean", lambda x: x[-1]), average("test/return_mean", np.mean)
    age = average("replay/search_age_updates", np.mean)
    wall = np.mean([result.summary["training_s"] for result in results])
    cells = [game, variant, returns, f"{mean:.1f}", *shares, f"{acting:.1f}", f"{course:.1f}"]
    rows.append([*cells, f"{age:.0f}", f"{wall:.0f}"])
  return markdown_table(COLUMNS, rows)


def returns() -> "Figure":
  """Draws the evaluations over environment steps, with a panel for each game."""
  found: dict[str, dict[str, list[Points]]] = {}
  for name, results in read_runs(HERE).items():
    game, variant = _split(name)
    found.setdefault(game, {})[variant] = [over_steps(result.path) for result in results]
  return curves(*(Panel(curves=runs, title=game, x="thousand_steps") for game, runs in found.items()))


TABLES = {"reanalyze_sample_efficiency": table}
PICTURES = {"results/curves.png": returns}
