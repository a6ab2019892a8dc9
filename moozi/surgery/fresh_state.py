"""The training state of each algorithm that surgery converts."""

from typing import Any

from moozi.baselines.ppo import algorithm as ppo
from moozi.baselines.q_learning import algorithm as q_learning
from moozi.core.config import Config
from moozi.core.spec import EnvSpec
from moozi.run import build


def initial_training_state(config: Config, spec: EnvSpec) -> Any:
  """Returns the TrainingState with which a run of this configuration begins."""
  if config.algorithm == "ppo":
    return ppo.initial_training_state(config, spec)
  if config.algorithm == "q_learning":
    return q_learning.initial_training_state(config, spec)
  return build.initial_training_state(config, spec)
