"""The table of the ablation of value targets, with the growth of the mean root value, and its picture."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.pictures import TRAINING, Panel, curves, points_of
from experiments.lib.tables import Curve, ablation_table

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
VARIANTS = ("default", "capacity_65536", "n_step_20", "both")
VALUE = "search/root_value"
FULL = 262_144
"""Environment steps that fill the default replay buffer."""


def values_of(curve: Curve) -> np.ndarray:
  """Returns [N, 2]: the environment steps and the mean root value of each tick from `FULL` on."""
  late = [tick for tick in curve if tick["env_steps"] >= FULL and VALUE in tick]
  values = [(tick["env_steps"], tick[VALUE]) for tick in late]
  return np.array(values, np.float64).reshape(-1, 2)


def growth(curve: Curve) -> float:
  """Returns the slope of a least-squares line through `values_of`, per 250,000 environment steps.

  The slope is NaN for fewer than two values.
  """
  values = values_of(curve)
  return float(np.polyfit(values[:, 0], values[:, 1], 1)[0]) * 250_000 if len(values) > 1 else float("nan")


def last_value(curve: Curve) -> float:
  """Returns the last of `values_of`; NaN if there are none."""
  values = values_of(curve)
  return float(values[-1, 1]) if len(values) else float("nan")


def root_values() -> "Figure":
  """Draws the mean root values and the training returns of the variants over environment steps."""
  panels = []
  for key, y in ((VALUE, "mean root value"), (TRAINING, "training return, last 100 episodes")):
    panels.append(Panel(curves=points_of(HERE, VARIANTS, key), x="thousand_steps", y=y))
  return curves(*panels)


MEASURES = {"growth of the value for each 250,000 steps": growth, "value at the end": last_value}
TABLES = {"value_lag": lambda: ablation_table(HERE, MEASURES)}
PICTURES = {"results/values.png": root_values}
