"""Space Invaders with fresher value targets, one thing changed at a time; resumable.

    python experiments/value_lag/ablation.py [--steps 750000] [--seeds 2] [--table]

Runs every (variant, seed) that has no result yet through `moozi train … runtime=local`, as many side by
side as there are cores, one thread each, and keeps `results/<variant>_seed<n>.json`. Then prints the table;
`--table` only prints it.
"""

import sys
from pathlib import Path

from moozi.experiments.ablations import Ablation, main

HERE = Path(__file__).resolve().parent

ABLATION = Ablation(
  config=HERE.parents[1] / "config" / "minatar" / "space_invaders.yaml",
  results=HERE / "results",
  common=("max_wall_s=null", "evaluation.period_env_steps=250000"),
  steps=750_000,
  variants={
    "default": (),
    "capacity_65536": ("replay.capacity=65536",),
    "n_step_20": ("targets.n_step=20",),
    "both": ("replay.capacity=65536", "targets.n_step=20"),
  },
)

if __name__ == "__main__":
  sys.exit(main(ABLATION, __doc__))
