"""Repeats `make train`, the five minutes of Breakout, with five seeds.

    python -m experiments.first_look.sweep          # 25 minutes; needs an idle machine
    python -m experiments.first_look.table          # the table of the finished jobs

Jobs run one at a time through Ray, each with the whole machine, as `make train` does. Runs and their logs are
in `runs/first_look`; each finished job has a folder in `results/`.
"""

import sys
from pathlib import Path

from experiments.lib.jobs import ROOT, Evaluation, Job
from experiments.lib.sweep import main

HERE = Path(__file__).resolve().parent
CONFIG = ROOT / "config" / "minatar" / "breakout_short.yaml"
SEEDS = (0, 1, 2, 3, 4)


def jobs() -> list[Job]:
  return [
    Job(
      name=f"breakout_short_seed{seed}",
      config=CONFIG,
      overrides=("logging.tensorboard=false", "evaluation.gif=false"),
      seed=seed,
      evaluations=(Evaluation(checkpoint="last", episodes=100),),
    )
    for seed in SEEDS
  ]


if __name__ == "__main__":
  sys.exit(main(jobs(), HERE, __doc__, measures_speed=True))
