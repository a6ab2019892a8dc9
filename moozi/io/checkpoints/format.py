"""Checkpoints: state files with the leaves of a training state, and metadata of the run."""

import dataclasses
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import moozi
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.flat_state import leaves_of, tree_of_state
from moozi.core.pytree import fields_of, replace
from moozi.core.spec import EnvSpec
from moozi.io.config import config_to_dict
from moozi.io.plain_data import first_difference, to_plain_json
from moozi.io.run_directory import check_name
from moozi.io.state_file import SUFFIX, StateFile, damaged, read_header, read_state, write_state

_CONTENTS, _PARAMETERS = "contents", "parameters"
_PARAMETER_FIELDS = ("params", "net_state")
# Suffix of the name of a checkpoint whose resume state was removed.
PARAMS_ONLY = "_params"
_ROOT = Path(moozi.__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointInfo(StateFile):
  """The header of a checkpoint or of a resume state; `meta` is that of `save_checkpoint`."""

  @property
  def env_steps(self) -> int:
    return int(self.meta["env_steps"])

  @property
  def learner_steps(self) -> int:
    return int(self.meta["learner_steps"])

  @property
  def name(self) -> str:
    """Name of the checkpoint's file without the suffix."""
    return self.path.name.removesuffix(SUFFIX)

  @property
  def lasting_name(self) -> str:
    """The name without the suffix PARAMS_ONLY; `find_checkpoint` accepts it for both names of the file."""
    return self.name.removesuffix(PARAMS_ONLY)

  @property
  def has_parameters_only(self) -> bool:
    """Whether the checkpoint was saved by `save_parameters`."""
    return self.meta.get(_CONTENTS) == _PARAMETERS


def path_of(directory: Path, name: str) -> Path:
  """Returns the path of the checkpoint or resume state with a name."""
  return directory / f"{name}{SUFFIX}"


def save_checkpoint(directory: Path, name: str, state: Any, meta: Mapping[str, Any]) -> Path:
  """Writes the checkpoint `name` atomically, in place of an older one; returns the path of its file.

  Args:
    state: a pytree of arrays and numbers.
    meta: JSON values by name. `env_steps` and `learner_steps` are required; `load_checkpoint` can compare the
      others with expected values.

  Raises: ValueError: `meta` lacks a key, or a leaf cannot be stored. UserError: the name is invalid. OSError:
    as `write_bytes`.
  """
  check_name(name, "checkpoint")
  for key in ("env_steps", "learner_steps"):
    if key not in meta:
      raise ValueError(f"meta: {key} is missing")
  directory.mkdir(parents=True, exist_ok=True)
  path = path_of(directory, name)
  write_state(path, leaves_of(state), meta)
  return path


def save_parameters(directory: Path, name: str, state: Any, meta: Mapping[str, Any]) -> Path:
  """Writes a checkpoint with the fields `params` and `net_state` of a training state only.

  It has no optimizer state, so no run can be resumed from it. Arguments, result and errors are those of
  `save_checkpoint`.
  """
  kept = {field: getattr(state, field) for field in _PARAMETER_FIELDS}
  return save_checkpoint(directory, name, kept, {**meta, _CONTENTS: _PARAMETERS})


def load_checkpoint(path: Path, template: Any, expected: Mapping[str, Any] | None = None) -> Any:
  """Returns a checkpoint's state in the structure of `template`, as NumPy arrays.

  From a checkpoint of `save_parameters`, all fields except `params` and `net_state` are None.

  Args:
    template: a pytree with the structure, shapes and dtypes of the saved state.
    expected: entries that the checkpoint's `meta` must have, such as `spec` and `network`.

  Raises: UserError: the file is not a checkpoint, is damaged, or is from another network or environment;
    the message names the first key that differs.
  """
  info = read_checkpoint_info(path, expected)
  state = read_state(path, info.digest)
  try:
    if not info.has_parameters_only or not hasattr(template, _PARAMETER_FIELDS[0]):
      return tree_of_state(template, state)
    kept = {field: getattr(template, field) for field in _PARAMETER_FIELDS}
    absent: dict[str, Any] = dict.fromkeys(fields_of(template))
    return replace(template, **absent | tree_of_state(kept, state))
  except ValueError as e:
    raise UserError(f"{path}: a checkpoint of another network or environment: {e}") from None


def read_checkpoint_info(path: Path, expected: Mapping[str, Any] | None = None) -> CheckpointInfo:
  """Reads a checkpoint's header, but not its arrays. `expected` and errors are as in `load_checkpoint`."""
  if path.is_dir():
    raise UserError(f"{path}: not a checkpoint, but a folder; a checkpoint is a file that ends with {SUFFIX}")
  file = read_header(path)
  if not all(type(file.meta.get(key)) is int for key in ("env_steps", "learner_steps")):
    raise damaged(path)
  _check_expected(path, file.meta, expected or {})
  return CheckpointInfo(**fields_of(file))


def expected_of(config: Config, spec: EnvSpec) -> dict[str, Any]:
  """Returns the entries of `meta` that identify a run's algorithm, environment and network."""
  network = config.network.model_dump(mode="json")
  if not config.network.normalize_observations:
    del network["normalize_observations"]  # checkpoints of networks without it have no such key
  if config.algorithm == "ppo":
    names = {"history_length", "scale_frames", "conv_stride", "layer_norm"}
    layers = config.ppo.network.model_dump(mode="json")
    del layers["lstm_forget_bias"]  # of the initial parameters alone
    if not config.ppo.network.lstm_size:
      del layers["lstm_size"]
    network = layers | config.ppo.model_dump(mode="json", include=names)
    if config.ppo.normalize_observations:
      network["observation_clip"] = config.ppo.observation_clip
    if config.ppo.value_loss == "categorical":
      network["scalar_transform"] = config.scalar_transform.model_dump(mode="json")
  elif config.is_on_policy:
    network = {"history_length": config.targets.history_length}
  if config.algorithm == "q_learning":
    options, length = config.q_learning, config.targets.history_length
    network = {"kind": options.kind, "history_length": length}
    if options.kind == "table":
      network["capacity"] = options.capacity
    else:
      if options.normalize_observations:
        network["normalize_observations"] = True
      if options.conv_stride != 1:  # checkpoints of networks without strides have no such key
        network["conv_stride"] = options.conv_stride
      network |= {"dueling": options.dueling, "layers": options.network.model_dump(mode="json")}
  if config.chance.codes:
    names = {"codes", "reward_from", "encoder_size"}
    network["chance"] = config.chance.model_dump(mode="json", include=names)
  return {"algorithm": config.algorithm_name, "spec": spec.to_dict(), "network": network}


def describe_run(config: Config, spec: EnvSpec) -> dict[str, Any]:
  """Returns the entries of `meta` for a run: those of `expected_of`, configuration, and git commit if any."""
  commit = code_commit()
  settings = expected_of(config, spec) | {"config": config_to_dict(config)}
  return settings if commit is None else settings | {"commit": commit}


def code_commit(folder: Path = _ROOT) -> str | None:
  """Returns the git commit of a clone, with `-dirty` if tracked files have changed; None if unknown."""
  if not (folder / ".git").exists():  # an installed package may be inside another project's repository
    return None
  command = ("git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - git
  except (OSError, subprocess.SubprocessError):
    return None
  return done.stdout.strip() or None


def _check_expected(path: Path, meta: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
  for key, value in expected.items():
    difference = first_difference(meta.get(key), to_plain_json(value), key)
    if difference is not None:
      name, found, wanted = difference
      kind = {"network": "network", "spec": "environment"}.get(key, key)
      raise UserError(f"{path}: a checkpoint of another {kind}: {name} is {found}, expected {wanted}")
