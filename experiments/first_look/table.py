"""The tables of the finished jobs and of their last moves, and the picture of their returns."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.pictures import Panel, curves, points_of
from experiments.lib.results import finished
from experiments.lib.tables import markdown_table

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
GOAL = 12.0

COLUMNS = (
  "seed",
  "printed return, 30 episodes",
  "return, 100 episodes",
  "environment steps",
  "seconds",
  "search alone per step, µs",
  "update alone per sample, µs",
)
LAST_MOVES = (
  "seed",
  "lost balls in 30 episodes",
  "savable in the last 8 moves",
  "moves before the loss: range, median",
  "network's value there: range, median",
)


def table() -> str:
  """Returns a Markdown row for each finished job."""
  rows = []
  for result in finished(HERE):
    speed = [1e6 * result.machine[f"{name}_s"] for name in ("t_act", "t_learn")]
    cells = (
      str(result.config.seed),
      f"{result.summary['test_return_mean']:.1f}",
      f"{result.evaluations[-1]['return_mean']:.1f}",
      f"{result.job['env_steps']:,}",
      f"{result.job['wall_s']:.0f}",
      *(f"{microseconds:.0f}" for microseconds in speed),
    )
    rows.append(cells)
  return markdown_table(COLUMNS, rows)


def returns() -> "Figure":
  """Draws the evaluations of each seed over environment steps, with the goal."""
  runs = points_of(HERE, {"mean of the seeds": "breakout_short"})
  return curves(Panel(curves=runs, levels={"goal": GOAL}, x="thousand_steps"))


def last_moves() -> str:
  """Returns a Markdown row for each seed: when its lost balls could last be saved, and the values there."""
  rows = []
  for result in finished(HERE):
    lost = json.loads((result.path / "last_moves.json").read_text("utf-8"))
    late = [episode for episode in lost if episode["moves"] is not None]
    moves, values = ([episode[key] for episode in late] for key in ("moves", "value"))
    cells = (
      str(len(lost)),
      str(len(late)),
      f"{min(moves)} to {max(moves)}, {np.median(moves):g}",
      f"{min(values):.2f} to {max(values):.2f}, {np.median(values):.2f}",
    )
    rows.append((str(result.config.seed), *cells))
  return markdown_table(LAST_MOVES, rows)


TABLES = {"first_look": table, "last_moves": last_moves}
PICTURES = {"results/returns.png": returns}
