"""Prints the table of the finished jobs: `python -m experiments.atari.table [--readme]`."""

import sys
from pathlib import Path

from experiments.atari.sweep import HERE, jobs
from experiments.lib.results import Result, markdown_table, print_table, read_finished

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


def finished(results: Path) -> list[Result]:
  """Returns the results of the finished jobs in the folder `results`, in the order of the jobs."""
  return read_finished(results, [job.name for job in jobs()])


def table_of(results: Path) -> str:
  """Returns a Markdown table of the finished jobs in the folder `results`."""
  rows = []
  for result in finished(results):
    figures = result.evaluations[-1]
    cells = (
      result.path.name,
      f"{figures['return_mean']:.1f}",
      "" if result.agent == "PPO" else str(result.config.planners.test.num_simulations),
      f"{min(figures['returns']):.0f}, {max(figures['returns']):.0f}",
      f"{figures['human_normalized']:.2f}",
      f"{result.job['env_steps']:,}",
      f"{result.job['wall_s'] / 60:.0f}",
      str(result.cores),
    )
    rows.append(cells)
  return markdown_table(COLUMNS, rows)


if __name__ == "__main__":
  sys.exit(print_table(lambda: table_of(HERE / "results"), HERE, __doc__))
