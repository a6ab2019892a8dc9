"""Prints the table of the finished jobs: `python -m experiments.chance.table`."""

from pathlib import Path

import numpy as np

from experiments.chance.sweep import HERE, SEEDS, VARIANTS
from experiments.lib.results import markdown_table, read_finished

COLUMNS = (
  "game",
  "variant",
  "return by seed, 100 evaluation episodes",
  "mean",
  "environment steps",
  "steps per s",
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
      rows.append((*cells, f"{np.mean(steps):,.0f}", f"{rate:,.0f}"))
  return markdown_table(COLUMNS, rows)


if __name__ == "__main__":
  print(table_of(HERE / "results"))
