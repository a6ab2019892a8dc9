"""Prints the table of the finished jobs: `python -m experiments.chance.table [--readme]`."""

import sys
from pathlib import Path

import numpy as np

from experiments.chance.sweep import HERE, SEEDS, VARIANTS
from experiments.lib.results import markdown_table, print_table, read_finished

COLUMNS = (
  "game",
  "variant",
  "return by seed, 100 evaluation episodes",
  "mean",
  "environment steps",
  "steps per s",
  "cores",
)


def table_of(results: Path) -> str:
  """Returns a Markdown table of the finished jobs in the folder `results`."""
  rows = []
  for game, variants in VARIANTS.items():
    for variant in variants:
      found = read_finished(results, [f"{game}_{variant}_seed{seed}" for seed in SEEDS])
      if not found:
        continue
      returns = [result.evaluations[-1]["return_mean"] for result in found]
      steps = [result.job["env_steps"] for result in found]
      rate = np.mean([result.job["env_steps"] / result.job["wall_s"] for result in found])
      cells = game, variant, ", ".join(f"{x:,.1f}" for x in returns), f"{np.mean(returns):,.1f}"
      cores = ", ".join(str(n) for n in sorted({result.cores for result in found}))
      rows.append((*cells, f"{np.mean(steps):,.0f}", f"{rate:,.0f}", cores))
  return markdown_table(COLUMNS, rows)


if __name__ == "__main__":
  sys.exit(print_table(lambda: table_of(HERE / "results"), HERE, __doc__))
