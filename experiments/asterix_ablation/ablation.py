"""Asterix with one thing changed at a time, at equal environment steps; resumable.

    python -m experiments.asterix_ablation.ablation [--steps 500000] [--seeds 2] [--table]

Runs every (variant, seed) that has no result yet through `moozi train … runtime=local`, as many side by
side as there are cores, one thread each, and keeps `results/<variant>_seed<n>.json`. Then prints the table;
`--table` only prints it.
"""

import sys
from pathlib import Path

from experiments.lib.ablations import Ablation, main

HERE = Path(__file__).resolve().parent

ABLATION = Ablation(
  config=HERE.parents[1] / "config" / "minatar" / "asterix.yaml",
  results=HERE / "results",
  common=("max_wall_s=null", "evaluation.period_env_steps=100000"),
  steps=500_000,
  variants={
    "default": (),
    "no_q_range_floor": ("planners.train.q_range_floor=1e-8", "planners.test.q_range_floor=1e-8"),
    "q_range_floor_0.1": ("planners.train.q_range_floor=0.1", "planners.test.q_range_floor=0.1"),
    # Gumbel search brings its own noise; PUCT's is the prior's.
    "puct": (
      "planners.train.algorithm=puct",
      "planners.train.dirichlet_fraction=0.25",
      "planners.test.algorithm=puct",
    ),
    "n_step_5": ("targets.n_step=5",),
    "n_step_20": ("targets.n_step=20",),
    # The rate is a function of updates, and falls as before over environment steps.
    "samples_per_step_8": ("learner.samples_per_step=8", "learner.learning_rate.decay_steps=93750"),
    "rank_sampling": ("replay.sampling=rank",),
    "no_consistency": ("learner.consistency_coef=0",),
    # Images as hidden states, where local objects stay in their places; small, for a core.
    "resnet": ("network.kind=resnet", "network.channels=16", "network.num_representation_blocks=1"),
  },
)

if __name__ == "__main__":
  sys.exit(main(ABLATION, __doc__))
