"""The table of the ablation on two cores: training return and evaluation of each seed, with their mean."""

from pathlib import Path

import numpy as np

from experiments.lib.tables import markdown_table, read_runs

HERE = Path(__file__).resolve().parent
COLUMNS = ("variant", "training return, last 100 episodes", "return, 100 evaluation episodes")
VARIANTS = {
  "default": "uniform sampling, no consistency loss, K = 3",
  "prioritized": "rank-based sampling",
  "consistency": "coefficient 2",
  "unroll_5": "K = 5",
}


def means_of() -> dict[str, tuple[list[float], list[float]]]:
  """Returns the training returns and the returns in evaluation of the seeds, by variant."""
  out = {}
  for variant, results in read_runs(HERE).items():
    acting = [[t["train/return_mean"] for t in r.ticks if "train/return_mean" in t][-1] for r in results]
    out[variant] = (acting, [result.summary["test_return_mean"] for result in results])
  return out


def table() -> str:
  def cell(values: list[float]) -> str:
    return f"{' '.join(f'{x:.1f}' for x in values)} ({np.mean(values):.1f})"

  rows = [(f"{name}: {VARIANTS[name]}", *map(cell, figures)) for name, figures in means_of().items()]
  return markdown_table(COLUMNS, rows)


TABLES = {"minatar_two_cores": table}
