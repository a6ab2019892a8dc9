"""The table and the picture of the ablation of the corridor."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.pictures import Panel, Points, curves, over_steps, runs_of
from experiments.lib.tables import LAST, Curve, ablation_table, last_evaluations
from moozi.envs.suites.tiny import OPTIMAL_RETURN

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
VARIANTS = ("default", "long_horizon", "long_unroll", "low_floor", "both")


def best_share(curve: Curve) -> float:
  """Returns the percentage of `last_evaluations` with the best return."""
  return float(100 * np.mean(last_evaluations(curve) == OPTIMAL_RETURN))


def num_best(variant: str) -> Points:
  """Returns the number of a variant's seeds with the best return over environment steps."""
  runs = [over_steps(run) for run in runs_of(HERE, variant)]
  steps = runs[0][0]  # those of every seed
  return steps, np.sum([returns == OPTIMAL_RETURN for _, returns in runs], axis=0)


def seeds() -> "Figure":
  """Draws the number of seeds with the best return over environment steps."""
  found = {variant: [num_best(variant)] for variant in VARIANTS}
  return curves(Panel(curves=found, x="thousand_steps", y="seeds of ten with the best return"))


MEASURES = {f"% of the last {LAST} evaluations with return 1": best_share}
TABLES = {"corridor": lambda: ablation_table(HERE, MEASURES)}
PICTURES = {"results/seeds.png": seeds}
