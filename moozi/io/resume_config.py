"""Which settings a run may go on with: those that its checkpoints do not depend on."""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io.config import config_to_dict, load_config, save_config
from moozi.io.run_directory import RunDirectory

# What the parameters, the optimizer's state, the steps in replay or the meaning of the curves depend on.
FIXED = (
  "seed",
  "algorithm",
  "env",
  "run",
  "network",
  "scalar_transform",
  "targets.history_length",
  "learner.optimizer",
  "learner.learning_rate.kind",
  "ppo.network",
  "ppo.history_length",
  "ppo.scale_frames",
  "ppo.initial_bias",
  "ppo.num_envs",
  "evaluation.seed",
  "checkpoint.start_from",
)


def load_resumed_config(run: RunDirectory, overrides: Sequence[str]) -> Config:
  """The run's configuration with some values changed.

  Args:
    run: its directory.
    overrides: `key=value` each.
  Raises: UserError: a value that cannot change in the course of a run.
  """
  old = run.load_config()
  new = load_config(run.config_path, overrides)
  before, after = flatten_settings(config_to_dict(old)), flatten_settings(config_to_dict(new))
  for key, value in after.items():
    if before.get(key) != value and any(key == fixed or key.startswith(f"{fixed}.") for fixed in FIXED):
      raise UserError(
        f"{key}={value}: a run cannot change it (it began with {before.get(key)}); fixed are "
        + ", ".join(FIXED)
      )
  return new


def save_resumed_config(run: RunDirectory, config: Config, env_steps: int) -> None:
  """Writes the run's new configuration; the one it had until these environment steps stays beside it."""
  if config_to_dict(config) == config_to_dict(run.load_config()):
    return
  shutil.copyfile(run.config_path, run.config_path.with_name(f"config_until_{env_steps:09d}.yaml"))
  save_config(config, run.config_path)


def flatten_settings(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
  """Nested settings as one dict with dotted keys."""
  out: dict[str, Any] = {}
  for name, value in data.items():
    if isinstance(value, Mapping) and value:
      out |= flatten_settings(value, f"{prefix}{name}.")
    else:
      out[prefix + name] = value
  return out
