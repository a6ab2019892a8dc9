"""The table and the picture of the tuning of PPO."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.pictures import Panel, curves, points_of
from experiments.lib.tables import Curve, ablation_table

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
VARIANTS = ("fast", "layer_norm", "two_epochs", "layer_norm_small_batches", "layer_norm_huber")


def late(curve: Curve) -> float:
  """Returns the mean of the last five evaluations' returns; NaN if there are fewer."""
  by_steps = {t["test/at_env_steps"]: t["test/return_mean"] for t in curve if "test/return_mean" in t}
  returns = list(by_steps.values())[-5:]
  return float(np.mean(returns)) if len(returns) == 5 else float("nan")


def returns() -> "Figure":
  """Draws the evaluations of the variants over environment steps."""
  return curves(Panel(curves=points_of(HERE, VARIANTS)))


MEASURES = {"mean of the last five evaluations": late}
TABLES = {"ppo_tuning": lambda: ablation_table(HERE, MEASURES)}
PICTURES = {"results/returns.png": returns}
