"""The table and the picture of learning on one device, four devices, one host and two hosts."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from experiments.lib.pictures import TRAINING, Panel, curves, points_of
from experiments.lib.results import Result
from experiments.lib.tables import markdown_table, read_runs

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
VARIANTS = ("one_device", "four_devices", "one_host", "two_hosts")
STEPS = (8_000, 16_000, 24_000)
"""Environment steps at which the table has the training return."""


def training_returns(result: Result) -> Float[np.ndarray, " 3"]:
  """Returns the training return, of the last 100 episodes, at each of `STEPS`."""
  ticks = [tick for tick in result.ticks if "train/return_mean" in tick]
  steps = [tick["env_steps"] for tick in ticks]
  return np.interp(STEPS, steps, [tick["train/return_mean"] for tick in ticks])


def table() -> str:
  """Returns a Markdown row for each variant: the mean and the range over seeds."""
  rows = []
  for variant, results in read_runs(HERE).items():
    found = [[*training_returns(result), result.summary["test_return_mean"]] for result in results]
    columns = np.transpose(found)
    cells = [f"{seeds.mean():z.2f} ({seeds.min():z.2f} to {seeds.max():z.2f})" for seeds in columns]
    updates = np.mean([result.summary["learner_steps"] for result in results])
    rows.append([variant, *cells, f"{updates:,.0f}", f"{len(results)}"])
  headings = [f"training return at {steps:,} steps" for steps in STEPS]
  return markdown_table(["variant", *headings, "evaluation at the end", "updates", "seeds"], rows)


def returns() -> "Figure":
  """Draws the training returns over environment steps."""
  found = points_of(HERE, VARIANTS, TRAINING)
  return curves(Panel(curves=found, x="thousand_steps", y="training return, last 100 episodes"))


TABLES = {"several_devices": table}
PICTURES = {"results/returns.png": returns}
