"""Prints the table of the finished jobs: `python -m experiments.first_look.table [--readme]`."""

import json
import sys
from pathlib import Path

from experiments.first_look.sweep import HERE, jobs
from experiments.lib.results import markdown_table, print_table, read_finished

COLUMNS = (
  "seed",
  "printed return, 30 episodes",
  "return, 100 episodes",
  "environment steps",
  "seconds",
  "bare search per step, update per sample",
)


def table_of(results: Path) -> str:
  """Returns a Markdown table of the finished jobs in the folder `results`."""
  rows = []
  for result in read_finished(results, [job.name for job in jobs()]):
    printed = json.loads((result.path / "summary.json").read_text("utf-8"))["test_return_mean"]
    speed = [1e6 * result.machine[f"{name}_s"] for name in ("t_act", "t_learn")]
    cells = (
      str(result.config.seed),
      f"{printed:.1f}",
      f"{result.evaluations[-1]['return_mean']:.1f}",
      f"{result.job['env_steps']:,}",
      f"{result.job['wall_s']:.0f}",
      f"{speed[0]:.0f}, {speed[1]:.0f} µs",
    )
    rows.append(cells)
  return markdown_table(COLUMNS, rows)


if __name__ == "__main__":
  sys.exit(print_table(lambda: table_of(HERE / "results"), HERE, __doc__))
