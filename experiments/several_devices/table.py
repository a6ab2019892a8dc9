"""The table of learning on one device, four devices, one host and two hosts."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from experiments.lib.results import Result
from experiments.lib.tables import markdown_table, read_runs

PERIOD = 8_000
"""Environment steps of a column."""
NUM_PERIODS = 4


def returns_by_step(result: Result) -> Float[np.ndarray, " 4"]:
  """Returns the mean return of the evaluations of each period; the last includes that at the end."""
  ticks = [tick for tick in result.ticks if "test/return_mean" in tick]
  steps = np.array([tick["test/at_env_steps"] for tick in ticks])
  returns = np.array([tick["test/return_mean"] for tick in ticks])
  periods = np.minimum(steps // PERIOD, NUM_PERIODS - 1)
  return np.array([returns[periods == period].mean() for period in range(NUM_PERIODS)])


def table() -> str:
  """Returns a Markdown row for each variant: the mean and the range over seeds, by environment steps."""
  rows = []
  for variant, results in read_runs(Path(__file__).parent).items():
    found = np.stack([returns_by_step(result) for result in results])
    cells = [
      f"{seeds.mean():z.2f} ({seeds.min():z.2f} to {seeds.max():z.2f})" for seeds in np.transpose(found)
    ]
    updates = np.mean([result.summary["learner_steps"] for result in results])
    rows.append([variant, *cells, f"{updates:,.0f}", f"{len(results)}"])
  bounds = [(period * PERIOD, (period + 1) * PERIOD) for period in range(NUM_PERIODS)]
  columns = [f"return, {low:,} to {high:,} steps" for low, high in bounds]
  return markdown_table(["variant", *columns, "updates", "seeds"], rows)


TABLES = {"several_devices": table}
