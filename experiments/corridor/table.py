"""The table of the ablation of the corridor."""

from pathlib import Path

import numpy as np

from experiments.lib.tables import LAST, Curve, ablation_table, last_evaluations
from moozi.envs.suites.tiny import OPTIMAL_RETURN


def best_share(curve: Curve) -> float:
  """Returns the percentage of `last_evaluations` with the best return."""
  return float(100 * np.mean(last_evaluations(curve) == OPTIMAL_RETURN))


MEASURES = {f"% of the last {LAST} evaluations with return 1": best_share}
TABLES = {"corridor": lambda: ablation_table(Path(__file__).parent, MEASURES)}
