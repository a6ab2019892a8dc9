"""The table of the finished jobs, and the picture of their returns."""

from pathlib import Path
from typing import TYPE_CHECKING

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


TABLES = {"first_look": table}
PICTURES = {"results/returns.png": returns}
