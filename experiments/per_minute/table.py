"""The table and the picture of the finished jobs."""

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.lib.pictures import dots
from experiments.lib.results import Result, finished
from experiments.lib.tables import markdown_table

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
GAMES = ("space_invaders", "freeway")
COLUMNS = (
  "game",
  "variant",
  "environment steps",
  "training return, last 100 episodes",
  "return, 100 episodes",
  "search alone per step, µs",
  "update alone per sample, µs",
)


def read_jobs() -> dict[str, dict[str, list[Result]]]:
  """Returns the finished jobs of each variant, by game."""
  out: dict[str, dict[str, list[Result]]] = {game: {} for game in GAMES}
  for result in finished(HERE):
    name = result.path.name.rpartition("_seed")[0]
    (game,) = (game for game in GAMES if name.startswith(game))
    out[game].setdefault(name.removeprefix(f"{game}_"), []).append(result)
  return out


def table() -> str:
  """Returns a Markdown row for each variant of a game; the highest return comes first."""
  rows = []
  for game, variants in read_jobs().items():
    found = sorted(variants.items(), key=lambda item: -_mean_return(item[1]))
    rows += [(game.replace("_", " "), f"`{name}`", *_cells(results)) for name, results in found]
  return markdown_table(COLUMNS, rows)


def _cells(results: list[Result]) -> list[str]:
  training = [[tick["train/return_mean"] for tick in r.ticks if "train/return_mean" in tick] for r in results]
  columns = (
    [f"{r.job['env_steps']:,}" for r in results],
    [f"{curve[-1]:.1f}" for curve in training],
    [f"{r.evaluations[-1]['return_mean']:.1f}" for r in results],
    *([f"{1e6 * r.machine[key]:.0f}" for r in results] for key in ("t_act_s", "t_learn_s")),
  )
  return [" ".join(cells) for cells in columns]


def _mean_return(results: list[Result]) -> float:
  return sum(r.evaluations[-1]["return_mean"] for r in results) / len(results)


def returns() -> "Figure":
  """Draws the return of each run, by variant, with a panel for each game."""
  found = {
    game.replace("_", " "): {
      name: [result.evaluations[-1]["return_mean"] for result in results]
      for name, results in sorted(variants.items(), key=lambda item: -_mean_return(item[1]))
    }
    for game, variants in read_jobs().items()
    if variants
  }
  return dots(found, "return, 100 episodes")


TABLES = {"per_minute": table}
PICTURES = {"results/returns.png": returns}
