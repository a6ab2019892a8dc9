"""Breakout with one thing changed at a time, at equal environment steps; resumable.

    python -m experiments.minatar_two_cores.ablation [--steps 300000] [--seeds 2] [--table]

Runs every (variant, seed) that has no result yet through `moozi train … runtime=local`, as many side by
side as there are cores, one thread each, and keeps `results/ablation/<variant>_seed<n>.json`. Then prints
the table; `--table` only prints it.
"""

import sys
from pathlib import Path

from experiments.lib.ablations import Ablation, main

HERE = Path(__file__).resolve().parent

ABLATION = Ablation(
  config=HERE.parents[1] / "config" / "minatar" / "breakout.yaml",
  results=HERE / "results" / "ablation",
  common=("max_wall_s=3600", "evaluation.period_env_steps=100000"),
  variants={
    "default": (),  # uniform sampling, no consistency loss, three steps of unroll
    "prioritized": ("replay.sampling=rank",),
    "consistency": ("learner.consistency_coef=2",),
    "unroll_5": ("targets.unroll_steps=5",),
    "mean_root_value": ("planners.train.root_value=mean",),
  },
)

if __name__ == "__main__":
  sys.exit(main(ABLATION, __doc__))
