"""Trains MooZi on Breakout with one setting changed at a time, for equal environment steps.

    python -m experiments.minatar_two_cores.ablation [--steps 300000] [--seeds 2] [--table]

Trains every (variant, seed) that has no result, with `runtime=local`, one core per run and all cores in
parallel. Then prints the table. A call runs for at most `--minutes`; the next call resumes. `--table` only
prints the table. Results are in `results/ablation`.
"""

import sys
from pathlib import Path

from experiments.lib.ablation import Ablation, main
from experiments.lib.jobs import ROOT

HERE = Path(__file__).resolve().parent

ABLATION = Ablation(
  config=ROOT / "experiments" / "configs" / "minatar" / "breakout.yaml",
  results=HERE / "results" / "ablation",
  common=("max_wall_s=3600", "evaluation.period_env_steps=100000"),
  variants={
    "default": (),  # uniform sampling, no consistency loss, three steps of unroll
    "prioritized": ("replay.sampling=rank",),
    "consistency": ("learner.consistency_coef=2",),
    "unroll_5": ("targets.unroll_steps=5",),
  },
)

if __name__ == "__main__":
  sys.exit(main(ABLATION, HERE, __doc__))
