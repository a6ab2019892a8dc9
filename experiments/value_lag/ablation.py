"""Space Invaders with fresher value targets, one thing changed at a time; resumable.

    python -m experiments.value_lag.ablation [--steps 750000] [--seeds 2] [--table]

Runs every (variant, seed) that has no result yet through `moozi train … runtime=local`, as many side by
side as there are cores, one thread each, and keeps `results/<variant>_seed<n>.json`. Then prints the table,
with how fast the mean value of the search grew; `--table` only prints it.
"""

import sys
from pathlib import Path

import numpy as np

from experiments.lib.ablations import Ablation, Curve, main

HERE = Path(__file__).resolve().parent
FULL = 262_144
"""Environment steps after which the default's replay buffer is full."""


def values_of(curve: Curve) -> np.ndarray:
  """Environment steps and the mean value of the search at a run's ticks from `FULL` on: [N, 2] float64."""
  late = [tick for tick in curve if tick["env_steps"] >= FULL and "search/root_value" in tick]
  values = [(tick["env_steps"], tick["search/root_value"]) for tick in late]
  return np.array(values, np.float64).reshape(-1, 2)


def growth(curve: Curve) -> float:
  """How much a line by least squares through `values_of` grows for each 250,000 environment steps.

  NaN where there are fewer than two of them.
  """
  values = values_of(curve)
  return float(np.polyfit(values[:, 0], values[:, 1], 1)[0]) * 250_000 if len(values) > 1 else float("nan")


def last_value(curve: Curve) -> float:
  """The last of `values_of`; NaN where there is none."""
  values = values_of(curve)
  return float(values[-1, 1]) if len(values) else float("nan")


ABLATION = Ablation(
  config=HERE.parents[1] / "config" / "minatar" / "space_invaders.yaml",
  results=HERE / "results",
  common=("max_wall_s=null", "evaluation.period_env_steps=250000"),
  steps=750_000,
  measures={
    "growth of the value for each 250,000 steps": growth,
    "value at the end": last_value,
  },
  variants={
    "default": (),
    "capacity_65536": ("replay.capacity=65536",),
    "n_step_20": ("targets.n_step=20",),
    "both": ("replay.capacity=65536", "targets.n_step=20"),
  },
)

if __name__ == "__main__":
  sys.exit(main(ABLATION, __doc__))
