"""Trains MooZi on a corridor with one or both of two settings changed, and prints the table.

    python -m experiments.corridor.ablation --seeds 10 [--variants default …] [--table]

Trains every (variant, seed) that has no result, one core per run and all cores in parallel. The best return
is 1. `--table` only prints the table.
"""

import sys
from pathlib import Path

import numpy as np

from experiments.lib.ablation import LAST, Ablation, Curve, last_evaluations, main
from experiments.lib.jobs import ROOT
from moozi.envs.suites.tiny import OPTIMAL_RETURN

HERE = Path(__file__).resolve().parent
LONG_UNROLL = ("targets.unroll_steps=5",)
LOW_FLOOR = ("planners.train.q_range_floor=0.01", "planners.test.q_range_floor=0.01")


def best_share(curve: Curve) -> float:
  """Returns the percentage of `last_evaluations` with the best return."""
  return float(100 * np.mean(last_evaluations(curve) == OPTIMAL_RETURN))


ABLATION = Ablation(
  config=ROOT / "config" / "tiny" / "corridor.yaml",
  results=HERE / "results",
  common=("evaluation.period_env_steps=1000", "logging.tensorboard=false"),
  steps=20_000,
  measures={f"% of the last {LAST} evaluations with return 1": best_share},
  variants={
    "default": (),
    "long_unroll": LONG_UNROLL,
    "low_floor": LOW_FLOOR,
    "both": (*LONG_UNROLL, *LOW_FLOOR),
  },
)

if __name__ == "__main__":
  sys.exit(main(ABLATION, HERE, __doc__))
