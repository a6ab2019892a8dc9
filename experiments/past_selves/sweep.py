"""Trains Connect Four with and without past selves as opponents, two seeds, 45 minutes each on one core.

    python -m experiments.past_selves.sweep             # at most 55 minutes; repeat until all is done
    python -m experiments.past_selves.sweep --list      # the progress of each job
    python -m experiments.past_selves.ratings           # then: an arena of all milestones, and its picture

As many jobs run in parallel as there are cores. At the time limit a run is stopped with a checkpoint, and the
next call resumes it. Runs and logs are in `runs/past_selves`; each finished job has a folder in `results/`.
"""

import sys
from pathlib import Path

from experiments.lib.jobs import MACHINE, ROOT, Evaluation, Job
from experiments.lib.sweep import main

HERE = Path(__file__).resolve().parent

SEEDS = (0, 1)
VARIANTS: dict[str, tuple[str, ...]] = {
  "self_play": (),
  # The pool gets about twenty past selves within the run.
  "past_selves": ("opponents.past_share=0.2", "opponents.period_updates=500"),
}
MILESTONE_STEPS = 200_000
COLUMNS = (
  *("env_steps", "learner_steps", "wall_s", "train/length_mean", "loss/policy", "loss/value", "loss/reward"),
  *("past/score", "past/games", "past/pool_size", "test/at_env_steps", "test/return_mean", "test/score"),
)
"""The metrics that a result keeps."""


def jobs() -> list[Job]:
  """Returns the jobs: both variants with the first seed, then both with the next."""
  common = (
    "max_wall_s=2700",
    "max_env_steps=700000",  # fewer than 45 minutes on one core allow, so the learning rate decays
    f"checkpoint.milestones_env_steps={MILESTONE_STEPS}",
    f"evaluation.period_env_steps={MILESTONE_STEPS}",
    "runtime=local",
    "evaluation.gif=false",
    "logging.tensorboard=false",
  )
  return [
    Job(
      name=f"{variant}_seed{seed}",
      config=ROOT / "config" / "boards" / "connect_four.yaml",
      overrides=(*common, *own),
      seed=seed,
      evaluations=(Evaluation(checkpoint="last", episodes=200, opponent="mcts:1000"),),
      may_differ=MACHINE,
    )
    for seed in SEEDS
    for variant, own in VARIANTS.items()
  ]


if __name__ == "__main__":
  sys.exit(main(jobs(), HERE, __doc__, columns=COLUMNS, one_core=True))
