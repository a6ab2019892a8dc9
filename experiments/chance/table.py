"""Prints the table of the finished jobs: `python -m experiments.chance.table`."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.chance.sweep import HERE, SEEDS, VARIANTS
from experiments.lib.results import read_result

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
  lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
  for game, variants in VARIANTS.items():
    for variant in variants:
      paths = [results / f"{game}_{variant}_seed{seed}" for seed in SEEDS]
      found = [path for path in paths if (path / "job.json").exists()]
      if not found:
        continue
      returns = [read_result(path).evaluations[-1]["return_mean"] for path in found]
      jobs: list[dict[str, Any]] = [json.loads((path / "job.json").read_text("utf-8")) for path in found]
      steps = [job["env_steps"] for job in jobs]
      rate = np.mean([job["env_steps"] / job["wall_s"] for job in jobs])
      lines.append(
        f"| {game} | {variant} | {', '.join(f'{x:,.1f}' for x in returns)} | {np.mean(returns):,.1f} "
        f"| {np.mean(steps):,.0f} | {rate:,.0f} |"
      )
  return "\n".join(lines)


if __name__ == "__main__":
  print(table_of(HERE / "results"))
