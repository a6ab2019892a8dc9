"""The tables of the finished jobs and of the wrong rewards, and the picture of the returns."""

import json
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from experiments.lib.pictures import dots
from experiments.lib.results import Result, finished
from experiments.lib.tables import markdown_table

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
COLUMNS = (
  "game",
  "variant",
  "environment steps",
  "training return, last 100 episodes",
  "return, 100 episodes",
  "search alone per step, µs",
  "update alone per sample, µs",
)
WRONG_REWARDS = (
  "aliens",
  "states",
  "with a reward",
  "aliens move",
  "next reward wrong, aliens stay",
  "wrong, aliens move",
  "wrong after 3 steps",
  "5",
  "8",
)


def read_jobs() -> dict[str, dict[str, list[Result]]]:
  """Returns the finished jobs of each variant, by game; the highest mean return comes first."""
  out: dict[str, dict[str, list[Result]]] = {}
  for result in finished(HERE):
    variant = result.path.name.rpartition("_seed")[0].removeprefix(f"{result.game}_")
    out.setdefault(result.game, {}).setdefault(variant, []).append(result)
  return {
    game.replace("_", " "): dict(sorted(variants.items(), key=lambda item: -fmean(_returns(item[1]))))
    for game, variants in out.items()
  }


def table() -> str:
  """Returns a Markdown row for each variant of a game."""
  rows = [
    (game, f"`{name}`", *_cells(results))
    for game, variants in read_jobs().items()
    for name, results in variants.items()
  ]
  return markdown_table(COLUMNS, rows)


def _cells(results: list[Result]) -> list[str]:
  columns = (
    [f"{r.job['env_steps']:,}" for r in results],
    [f"{r.training_return:.1f}" for r in results],
    [f"{value:.1f}" for value in _returns(results)],
    *([f"{1e6 * r.machine[key]:.0f}" for r in results] for key in ("t_act_s", "t_learn_s")),
  )
  return [" ".join(cells) for cells in columns]


def _returns(results: list[Result]) -> list[float]:
  return [result.evaluations[-1]["return_mean"] for result in results]


def returns() -> "Figure":
  """Draws the return of each run, by variant, with a panel for each game."""
  found = {
    game: {name: _returns(results) for name, results in variants.items()}
    for game, variants in read_jobs().items()
  }
  return dots(found, "return, 100 episodes")


def wrong_rewards() -> str:
  """Returns a Markdown row for each group of numbers of aliens, of what `rewards.py` has measured."""
  rows = [
    (
      " to ".join(map(str, row["aliens"])),
      f"{row['states']:,}",
      *(f"{row[key]:.1%}" for key in ("reward", "moves", "wrong_still", "wrong_moving")),
      *(f"{row['wrong'][k - 1]:.1%}" for k in (3, 5, 8)),
    )
    for row in json.loads((HERE / "results" / "rewards.json").read_text("utf-8"))["rows"]
  ]
  return markdown_table(WRONG_REWARDS, rows)


TABLES = {"per_minute": table, "rewards": wrong_rewards}
PICTURES = {"results/returns.png": returns}
