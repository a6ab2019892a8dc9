"""Trains MooZi on Asterix with one setting changed at a time, for equal environment steps.

    python -m experiments.asterix_ablation.ablation [--steps 500000] [--seeds 2] [--table]

Trains every (variant, seed) that has no result, with `runtime=local`, one core per run and all cores in
parallel. Then prints the table. A call runs for at most `--minutes`; the next call resumes. `--table` only
prints the table.
"""

import sys
from pathlib import Path

from experiments.lib.ablation import Ablation, main
from experiments.lib.jobs import ROOT

HERE = Path(__file__).resolve().parent

ABLATION = Ablation(
  config=ROOT / "experiments" / "configs" / "minatar" / "asterix.yaml",
  results=HERE / "results",
  common=("max_wall_s=null", "evaluation.period_env_steps=100000"),
  steps=500_000,
  variants={
    "default": (),
    "no_q_range_floor": ("planners.train.q_range_floor=1e-8", "planners.test.q_range_floor=1e-8"),
    "q_range_floor_0.1": ("planners.train.q_range_floor=0.1", "planners.test.q_range_floor=0.1"),
    # Gumbel search samples its own noise; PUCT needs Dirichlet noise in the prior.
    "puct": (
      "planners.train.algorithm=puct",
      "planners.train.dirichlet_fraction=0.25",
      "planners.test.algorithm=puct",
    ),
    "n_step_5": ("targets.n_step=5",),
    "n_step_20": ("targets.n_step=20",),
    # The decay counts updates, of which there are twice as many. It ends at the same environment step.
    "samples_per_step_8": ("learner.samples_per_step=8", "learner.learning_rate.decay_steps=93750"),
    "rank_sampling": ("replay.sampling=rank",),
    "no_consistency": ("learner.consistency_coef=0",),
    # A network whose hidden states have a spatial layout, small enough to train on one core.
    "resnet": ("network.kind=resnet", "network.channels=16", "network.num_representation_blocks=1"),
  },
)

if __name__ == "__main__":
  sys.exit(main(ABLATION, HERE, __doc__))
