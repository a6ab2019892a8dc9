"""The table of the tuning of PPO."""

from pathlib import Path

import numpy as np

from experiments.lib.tables import Curve, ablation_table


def late(curve: Curve) -> float:
  """Returns the mean of the last five evaluations' returns; NaN if there are fewer."""
  by_steps = {t["test/at_env_steps"]: t["test/return_mean"] for t in curve if "test/return_mean" in t}
  returns = list(by_steps.values())[-5:]
  return float(np.mean(returns)) if len(returns) == 5 else float("nan")


MEASURES = {"mean of the last five evaluations": late}
TABLES = {"ppo_tuning": lambda: ablation_table(Path(__file__).parent, MEASURES)}
