"""Trains PPO on Breakout as gymnax does, for 10M steps with three settings of learning rate and biases.

    python -m experiments.ppo_check.sweep           # at most 55 minutes; repeat until all is done
    python -m experiments.ppo_check.sweep --list    # the progress of each job

Episodes are evaluated as in gymnax. Runs and their logs are in `runs/ppo_check`; each finished job has a
folder in `results/`, from which analysis.py makes the table.
"""

import sys
from pathlib import Path

from experiments.lib.jobs import ROOT, Evaluation, Job
from experiments.lib.sweep import main

HERE = Path(__file__).resolve().parent
CONFIG = ROOT / "config" / "ppo" / "minatar" / "breakout.yaml"

VARIANTS = {
  "rate_1e-3": ("ppo.learning_rate=1e-3",),
  "rate_5e-4": ("ppo.learning_rate=5e-4",),
  # The initial biases of gymnax's networks.
  "rate_5e-4_biases": ("ppo.learning_rate=5e-4", "ppo.initial_bias=0.05"),
}
SEEDS = (0, 1)
STEPS = 10_000_000
AT_STEPS = tuple(range(1_000_000, STEPS + 1, 1_000_000))
EPISODES = 164

# gymnax samples its test actions from the policy, without random starts.
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
  """Returns one job for each variant and seed."""
  return [
    Job(
      name=f"ppo_breakout_{variant}_seed{seed}",
      config=CONFIG,
      overrides=(*COMMON, *AS_GYMNAX, *changes),
      seed=seed,
      evaluations=tuple(Evaluation(checkpoint=str(steps), episodes=EPISODES) for steps in AT_STEPS),
      # PPO does not search. Defaults of the planners have changed since the committed runs.
      may_differ=("planners.",),
    )
    for seed in SEEDS
    for variant, changes in VARIANTS.items()
  ]


if __name__ == "__main__":
  sys.exit(main(jobs(), HERE, __doc__))
