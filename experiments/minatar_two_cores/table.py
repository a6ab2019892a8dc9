"""The table of the ablation on two cores: training return and evaluation of each seed, with their mean.

The picture has two runs of 1,200 seconds.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.pictures import TRAINING, Panel, curves, over_seconds, over_steps
from experiments.lib.tables import markdown_table, read_runs

if TYPE_CHECKING:
  from matplotlib.figure import Figure

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
    acting = [result.training_return for result in results]
    out[variant] = (acting, [result.summary["test_return_mean"] for result in results])
  return out


def table() -> str:
  def cell(values: list[float]) -> str:
    return f"{' '.join(f'{x:.1f}' for x in values)} ({np.mean(values):.1f})"

  rows = [(f"{name}: {VARIANTS[name]}", *map(cell, figures)) for name, figures in means_of().items()]
  return markdown_table(COLUMNS, rows)


def returns() -> "Figure":
  """Draws training returns and evaluations over environment steps and over minutes of training."""
  panels, names = [], ("breakout_seed0", "breakout_64_envs")
  for x, over in (("env_steps", over_steps), ("wall_s", over_seconds)):
    training = {name: [over(HERE / "results" / name, TRAINING)] for name in names}
    tested = {name: [over(HERE / "results" / name)] for name in names}
    panels.append(Panel(curves=training, dots=tested, x=x, y="return"))
  return curves(*panels)


TABLES = {"minatar_two_cores": table}
PICTURES = {"results/curves.png": returns}
