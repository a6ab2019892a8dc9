"""The tables of the finished jobs, and of games with more simulations."""

from pathlib import Path

from experiments.atari import simulations
from experiments.lib.results import finished
from experiments.lib.tables import markdown_table

HERE = Path(__file__).resolve().parent

COLUMNS = (
  "job",
  "return, 30 whole games",
  "simulations",
  "worst and best game",
  "human-normalized",
  "environment steps",
  "minutes",
  "cores",
)


def table_of(results: Path | None = None) -> str:
  """Returns a Markdown table of the finished jobs in the folder `results`."""
  rows = []
  for result in finished(HERE, results):
    figures = result.evaluations[-1]
    cells = (
      result.path.name,
      f"{figures['return_mean']:.1f}",
      str(result.config.planners.test.num_simulations) if result.config.algorithm == "muzero" else "",
      f"{min(figures['returns']):.0f}, {max(figures['returns']):.0f}",
      f"{figures['human_normalized']:.2f}",
      f"{result.job['env_steps']:,}",
      f"{result.job['wall_s'] / 60:.0f}",
      str(result.cores),
    )
    rows.append(cells)
  return markdown_table(COLUMNS, rows)


TABLES = {"atari": table_of, "simulations": simulations.table_of}
