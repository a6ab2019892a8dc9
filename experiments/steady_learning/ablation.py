"""Trains MooZi on Breakout for 1M steps, one setting changed at a time, and prints the table.

    python -m experiments.steady_learning.ablation [--seeds 3] [--variants default ...] [--table]

Trains every (variant, seed) that has no result, with `runtime=local`, one core per run and all cores in
parallel. A call runs for at most `--minutes`; the next call resumes. `--table` only prints the table.
"""

import sys
from pathlib import Path

from experiments.lib.ablation import Ablation, Curve, last_evaluations, main
from experiments.lib.results import swing_of

HERE = Path(__file__).resolve().parent


def last_mean(curve: Curve) -> float:
  """Returns the mean of `last_evaluations`."""
  return float(last_evaluations(curve).mean())


def swing(curve: Curve) -> float:
  """Returns the swing of `last_evaluations` in percent."""
  return 100 * swing_of(last_evaluations(curve))


FRESH = ("replay.capacity=65536",)
SMALL = ("replay.capacity=32768",)
STARTS = (*SMALL, "workers.max_random_starts=8")
AVERAGED = ("learner.target_decay=0.999", "workers.network=target", "evaluation.network=target")

OTHERS = {"asterix": 1000, "freeway": 2500, "seaquest": 1000, "space_invaders": 1000}
"""The step limits of the other games."""
CHANGES = {"default": (), "chosen": STARTS, "fresh_starts": (*FRESH, "workers.max_random_starts=8")}

ABLATION = Ablation(
  config=HERE / "breakout.yaml",
  results=HERE / "results",
  steps=1_000_000,
  measures={"mean of the last ten evaluations": last_mean, "their standard deviation in % of it": swing},
  variants={
    "default": (),
    "no_consistency": ("learner.consistency_coef=0",),
    "capacity_65536": FRESH,
    "capacity_32768": SMALL,
    "capacity_16384": ("replay.capacity=16384",),
    "small_random_actions": (*SMALL, "planners.train.random_action_prob=0.02"),
    "small_random_starts": STARTS,
    "small_both": (*STARTS, "planners.train.random_action_prob=0.02"),
    "starts_ema_test": (*STARTS, "learner.target_decay=0.999", "evaluation.network=target"),
    "starts_no_consistency": (*STARTS, "learner.consistency_coef=0"),
    "starts_2_samples": (*STARTS, "learner.samples_per_step=2", "learner.learning_rate.decay_steps=7812"),
    "fresh_values": (*FRESH, "reanalyze.ratio=0.8", "reanalyze.search=false"),
    "fresh_ema": (*FRESH, *AVERAGED),
    "fresh_low_end": (*FRESH, "learner.learning_rate.end=1e-5"),
    "fresh_random_starts": (*FRESH, "workers.max_random_starts=8"),
    "fresh_2_samples": (*FRESH, "learner.samples_per_step=2", "learner.learning_rate.decay_steps=7812"),
    **{
      f"{game}_{name}": (f"env.name=minatar:{game}", f"env.kwargs.max_episode_steps={cap}", *change)
      for game, cap in OTHERS.items()
      for name, change in CHANGES.items()
    },
  },
)

if __name__ == "__main__":
  sys.exit(main(ABLATION, HERE, __doc__))
