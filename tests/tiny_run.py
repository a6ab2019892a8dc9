"""Settings of a run that takes seconds, for tests."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import yaml

TINY = (
  "env.name=tiny:catch",
  "network.kind=mlp",
  "network.latent_size=16",
  "network.head_size=16",
  "network.num_representation_blocks=0",
  "network.num_prediction_blocks=0",
  "targets.unroll_steps=2",
  "targets.n_step=3",
  "planners.train.num_simulations=4",
  "planners.test.num_simulations=4",
  "workers.num_envs=4",
  "workers.segment_length=8",
  "replay.capacity=4096",
  "replay.min_steps_to_learn=64",
  "learner.batch_size=16",
  "learner.updates_per_call=2",
  "evaluation.num_envs=3",
  "evaluation.episodes=4",
  "evaluation.final_episodes=5",
  "evaluation.max_random_starts=2",
  "max_env_steps=320",
)

# Checkpoints and evaluations are frequent, and so are lines of metrics.
RESUMABLE = (
  *TINY,
  "runtime=local",
  "logging.period_s=1e-9",
  "checkpoint.milestones_env_steps=64",
  "checkpoint.period_s=1e9",
  "checkpoint.first_s=null",
  "evaluation.period_env_steps=96",
  "logging.progress=none",
)


def keywords(settings: Iterable[str]) -> dict[str, Any]:
  """Returns settings `key=value` as arguments of `moozi.train`."""
  parts = (setting.partition("=") for setting in settings)
  return {key: yaml.safe_load(value) for key, _, value in parts}


def shaken(params: Any, seed: int = 0) -> Any:
  """Returns perturbed parameters; with initial ones, all positions have the same value and policy."""
  rng = np.random.default_rng(seed)

  def add(x):
    return np.asarray(x) + np.float32(0.3 * rng.normal(size=np.shape(x)))

  return jax.tree_util.tree_map(add, params)
