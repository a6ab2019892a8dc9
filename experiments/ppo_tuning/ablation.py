"""Tunes PPO on MinAtar Breakout, from the replica of gymnax's settings.

    python -m experiments.ppo_tuning.ablation --seeds 1 [--variants conv …] [--steps 1000000] [--table]

Trains every (variant, seed) that has no result, one core per run and all cores in parallel. Then prints the
table. A call runs for at most `--minutes`; the next call resumes. `--table` only prints the table.
"""

import sys
from pathlib import Path

import numpy as np

from experiments.lib.ablation import Ablation, Curve, main
from experiments.lib.jobs import ROOT

HERE = Path(__file__).resolve().parent

CONV = (
  "ppo.network.kind=conv",
  "ppo.network.hidden_sizes=[128]",
  "ppo.network.sharing=shared",
  "ppo.network.orthogonal_init=true",
)
START = (
  *CONV,
  "ppo.bootstrap_truncated=true",
  "ppo.anneal_learning_rate=true",
  "ppo.discount=0.99",
  "ppo.clip_value=false",
)
"""The start of the tuning: what published PPO agents of MinAtar share (README.md), and the bootstrap."""
FAST = (
  *START,
  "ppo.network.channels=32",
  "ppo.conv_stride=2",
  "ppo.num_envs=128",
  "ppo.segment_length=64",
)
"""A cheaper convolution with more channels, and twice the environments with segments of half the length."""
NORM = (*FAST, "ppo.layer_norm=true")
CHOSEN = "layer_norm_huber"
"""The variant whose settings are `config/ppo/minatar_tuned.yaml`."""


def late(curve: Curve) -> float:
  """Returns the mean of the last five evaluations' returns; NaN if there are fewer."""
  by_steps = {t["test/at_env_steps"]: t["test/return_mean"] for t in curve if "test/return_mean" in t}
  returns = list(by_steps.values())[-5:]
  return float(np.mean(returns)) if len(returns) == 5 else float("nan")


ABLATION = Ablation(
  config=ROOT / "config" / "ppo" / "minatar" / "breakout.yaml",
  results=HERE / "results",
  common=(
    "max_wall_s=null",
    "evaluation.period_env_steps=100000",
    "evaluation.episodes=20",
    "evaluation.final_episodes=100",
    "logging.tensorboard=false",
  ),
  steps=1_000_000,
  measures={"mean of the last five evaluations": late},
  variants={
    "replica": (),
    "start": START,
    "fast": FAST,
    "layer_norm": NORM,
    "categorical": (*FAST, "ppo.value_loss=categorical"),
    "huber": (*FAST, "ppo.value_loss=huber"),
    "discount_997": (*FAST, "ppo.discount=0.997"),
    "entropy_03": (*FAST, "ppo.entropy_coef=0.03"),
    "rate_2e-3": (*FAST, "ppo.learning_rate=2e-3"),
    "rate_5e-4": (*FAST, "ppo.learning_rate=5e-4"),
    "two_epochs": (*FAST, "ppo.num_epochs=2"),
    "short_segments": (*FAST, "ppo.segment_length=32", "ppo.num_minibatches=4"),
    "layer_norm_small_batches": (*NORM, "ppo.num_minibatches=16"),
    "layer_norm_discount_997": (*NORM, "ppo.discount=0.997"),
    "layer_norm_huber": (*NORM, "ppo.value_loss=huber"),
    "layer_norm_categorical": (*NORM, "ppo.value_loss=categorical"),
    "layer_norm_rate_2e-3": (*NORM, "ppo.learning_rate=2e-3"),
  },
)

if __name__ == "__main__":
  sys.exit(main(ABLATION, HERE, __doc__))
