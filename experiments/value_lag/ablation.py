"""Trains MooZi on Space Invaders with fresher value targets, one setting changed at a time.

    python -m experiments.value_lag.ablation [--steps 750000] [--seeds 2] [--table]

Trains every (variant, seed) that has no result, with `runtime=local`, one core per run and all cores in
parallel. Then prints the table. A call runs for at most `--minutes`; the next call resumes. `--table` only
prints the table. The table includes the growth of the mean root value.
"""

import sys
from pathlib import Path

import numpy as np

from experiments.lib.ablation import Ablation, Curve, main
from experiments.lib.jobs import ROOT

HERE = Path(__file__).resolve().parent
FULL = 262_144
"""Environment steps that fill the default replay buffer."""


def values_of(curve: Curve) -> np.ndarray:
  """Returns [N, 2]: the environment steps and the mean root value of each tick from `FULL` on."""
  late = [tick for tick in curve if tick["env_steps"] >= FULL and "search/root_value" in tick]
  values = [(tick["env_steps"], tick["search/root_value"]) for tick in late]
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


ABLATION = Ablation(
  config=ROOT / "experiments" / "configs" / "minatar" / "space_invaders.yaml",
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
  sys.exit(main(ABLATION, HERE, __doc__))
