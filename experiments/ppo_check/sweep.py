"""PPO on Breakout held against gymnax's: two learning rates, two ways for biases to begin, 10M steps each,
evaluated as gymnax does it.

    python -m experiments.ppo_check.sweep           # a piece of at most 55 minutes; again until all is done
    python -m experiments.ppo_check.sweep --list    # how far each job has come

Runs, their logs and the evaluations so far lie in `runs/ppo_check`; a job that is whole gets its folder in
`results/`, of which analysis.py makes the table.
"""

import sys
from pathlib import Path

from experiments.lib.jobs import Evaluation, Job
from experiments.lib.sweeping import main

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONFIG = ROOT / "config" / "ppo" / "minatar" / "breakout.yaml"

VARIANTS = {
  "rate_1e-3": ("ppo.learning_rate=1e-3",),
  "rate_5e-4": ("ppo.learning_rate=5e-4",),
  # As gymnax's networks begin.
  "rate_5e-4_biases": ("ppo.learning_rate=5e-4", "ppo.initial_bias=0.05"),
}
SEEDS = (0, 1)
STEPS = 10_000_000
AT_STEPS = tuple(range(1_000_000, STEPS + 1, 1_000_000))
EPISODES = 164

# gymnax draws its test actions from the policy, and begins plainly.
AS_GYMNAX = ("evaluation.noise_free=false", "evaluation.max_random_starts=0")
COMMON = (
  f"max_env_steps={STEPS}",
  "max_wall_s=null",
  "evaluation.final_episodes=10",
  "evaluation.gif=false",
  "checkpoint.milestones_env_steps=1000000",
  "logging.tensorboard=false",
)


def jobs() -> list[Job]:
  """A run for each variant and seed."""
  return [
    Job(
      name=f"ppo_breakout_{variant}_seed{seed}",
      config=CONFIG,
      overrides=(*COMMON, *AS_GYMNAX, *changes),
      seed=seed,
      evaluations=tuple(Evaluation(checkpoint=str(steps), episodes=EPISODES) for steps in AT_STEPS),
    )
    for seed in SEEDS
    for variant, changes in VARIANTS.items()
  ]


if __name__ == "__main__":
  sys.exit(main(jobs(), ROOT / "runs" / "ppo_check", HERE / "results", __doc__))
