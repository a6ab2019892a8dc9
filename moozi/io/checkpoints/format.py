"""The format of a checkpoint: a folder with a safetensors file and a JSON manifest.

A checkpoint is written to a temporary folder, which is then renamed, so no reader sees a partial checkpoint.
The manifest has the SHA-256 of the arrays and of itself, because safetensors does not detect altered bytes.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy

import moozi
from moozi.core.config import Config
from moozi.core.errors import UserError, reason_of
from moozi.core.flat_state import State
from moozi.core.pytree import fields_of, replace
from moozi.core.spec import EnvSpec
from moozi.io.atomic_write import sync_folder, write_synced
from moozi.io.bounded_read import read_arrays, read_bounded
from moozi.io.checkpoints.leaves import flatten_tree, read_flat, unflatten_tree
from moozi.io.config import config_to_dict
from moozi.io.plain_data import first_difference, to_plain_json
from moozi.io.run_directory import check_name

FORMAT = 1
MANIFEST = "manifest.json"
ARRAYS = "arrays.safetensors"
_MAX_MANIFEST_BYTES = 64 << 20
_CONTENTS, _PARAMETERS = "contents", "parameters"
_PARAMETER_FIELDS = ("params", "net_state")
# Suffix of the name of a checkpoint whose resume state was removed.
PARAMS_ONLY = "_params"
_ROOT = Path(moozi.__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class CheckpointInfo:
  """Facts from a checkpoint's manifest.

  Attributes:
    meta: the `meta` of `save_checkpoint`.
    version: version of MooZi that saved the checkpoint; None if the manifest lacks it.
    digest: the SHA-256 of the file of arrays; None if the manifest lacks it.
  """

  path: Path
  env_steps: int
  learner_steps: int
  meta: dict[str, Any]
  version: str | None = None
  digest: str | None = None

  @property
  def name(self) -> str:
    """Name of the checkpoint's folder."""
    return self.path.name

  @property
  def lasting_name(self) -> str:
    """The name that the checkpoint keeps when its resume state is removed; `find_checkpoint` accepts it."""
    return self.name.removesuffix(PARAMS_ONLY)

  @property
  def has_parameters_only(self) -> bool:
    """Whether the checkpoint was saved by `save_parameters`."""
    return self.meta.get(_CONTENTS) == _PARAMETERS


def save_checkpoint(directory: Path, name: str, state: Any, meta: Mapping[str, Any]) -> Path:
  """Writes the checkpoint `directory/name` atomically, and returns its path. Replaces an older checkpoint.

  Args:
    state: a pytree of arrays, PRNG keys, int, float, bool and str.
    meta: JSON values by name. `env_steps` and `learner_steps` are required; `load_checkpoint` can compare the
      others with expected values.

  Raises: ValueError: `meta` lacks a key, or a leaf cannot be stored.
  """
  check_name(name, "checkpoint")
  for key in ("env_steps", "learner_steps"):
    if key not in meta:
      raise ValueError(f"meta: {key} is missing")
  arrays, leaves = flatten_tree(state)
  data = safetensors.numpy.save(arrays)
  manifest = {
    "format": FORMAT,
    "moozi": moozi.__version__,
    "meta": to_plain_json(meta),
    "leaves": leaves,
    "files": {ARRAYS: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}},
  }
  manifest["sha256"] = hashlib.sha256(_encode(manifest)).hexdigest()
  directory.mkdir(parents=True, exist_ok=True)
  temporary, old = (directory / f".{name}.{os.getpid()}.{kind}" for kind in ("tmp", "old"))
  final = directory / name
  shutil.rmtree(temporary, ignore_errors=True)
  try:
    temporary.mkdir()
    write_synced(temporary / ARRAYS, data)
    write_synced(temporary / MANIFEST, _encode(manifest))
    sync_folder(temporary)
    if final.exists():
      os.rename(final, old)
    try:
      os.rename(temporary, final)
    except OSError:
      if old.exists():
        os.rename(old, final)
      raise
  finally:
    # After an error such as a full disk, removes the partial checkpoint.
    shutil.rmtree(temporary, ignore_errors=True)
    if final.exists():  # else `old` is the only copy, which `mend_checkpoints` restores
      shutil.rmtree(old, ignore_errors=True)
  sync_folder(directory)
  return final


def save_parameters(directory: Path, name: str, state: Any, meta: Mapping[str, Any]) -> Path:
  """Writes a checkpoint with the fields `params` and `net_state` of a training state only.

  The agent plays the same with it as with a complete checkpoint. It has no optimizer state, so no run can be
  resumed from it. Arguments, result and errors are those of `save_checkpoint`.
  """
  kept = {field: getattr(state, field) for field in _PARAMETER_FIELDS}
  return save_checkpoint(directory, name, kept, {**meta, _CONTENTS: _PARAMETERS})


def load_checkpoint(path: Path, template: Any, expected: Mapping[str, Any] | None = None) -> Any:
  """Returns a checkpoint's state in the structure of `template`.

  From a checkpoint of `save_parameters`, all fields except `params` and `net_state` are None.

  Args:
    template: a pytree with the structure, shapes and dtypes of the saved state. An array that is not a NumPy
      array in the template is returned as a JAX array.
    expected: entries that the checkpoint's `meta` must have, such as `spec` and `network`.

  Raises: UserError: the folder is not a checkpoint, is damaged, or is from another network or environment;
    the message names the first key that differs.
  """
  manifest = _read_manifest(path)
  _check_expected(path, manifest["meta"], expected or {})
  arrays = _read_arrays(path, manifest)
  try:
    if manifest["meta"].get(_CONTENTS) != _PARAMETERS or not hasattr(template, _PARAMETER_FIELDS[0]):
      return unflatten_tree(template, arrays, manifest["leaves"])
    kept = {field: getattr(template, field) for field in _PARAMETER_FIELDS}
    absent: dict[str, Any] = dict.fromkeys(fields_of(template))
    return replace(template, **absent | unflatten_tree(kept, arrays, manifest["leaves"]))
  except ValueError as e:
    raise UserError(f"{path}: a checkpoint of another network or environment: {e}") from None


def load_flat(path: Path) -> tuple[State, dict[str, Any]]:
  """Returns the flat state of a checkpoint and its `meta`, without a template.

  Raises: UserError: the folder is not a checkpoint, is damaged, or has a state that is not flat.
  """
  manifest = _read_manifest(path)
  try:
    return read_flat(_read_arrays(path, manifest), manifest["leaves"]), manifest["meta"]
  except ValueError as e:
    raise UserError(f"{path}: not a flat state: {e}") from None


def read_checkpoint_info(path: Path, expected: Mapping[str, Any] | None = None) -> CheckpointInfo:
  """Reads a manifest, but not the arrays. `expected` and errors are as in `load_checkpoint`."""
  manifest = _read_manifest(path)
  meta, version = manifest["meta"], manifest.get("moozi")
  _check_expected(path, meta, expected or {})
  version = version if isinstance(version, str) else None
  digest = manifest["files"][ARRAYS].get("sha256")
  return CheckpointInfo(path, meta["env_steps"], meta["learner_steps"], meta, version, digest)


def expected_of(config: Config, spec: EnvSpec) -> dict[str, Any]:
  """Returns the entries of `meta` that identify a run's algorithm, environment and network."""
  network = config.network.model_dump(mode="json")
  if config.algorithm == "ppo":
    names = {"history_length", "scale_frames", "conv_stride", "layer_norm"}
    network = config.ppo.network.model_dump(mode="json") | config.ppo.model_dump(mode="json", include=names)
    if config.ppo.value_loss == "categorical":
      network["scalar_transform"] = config.scalar_transform.model_dump(mode="json")
  if config.algorithm == "q_learning":
    options, length = config.q_learning, config.targets.history_length
    network = {"kind": options.kind, "history_length": length}
    if options.kind == "table":
      network["capacity"] = options.capacity
    else:
      network |= {"dueling": options.dueling, "layers": options.network.model_dump(mode="json")}
  if config.chance.codes:
    names = {"codes", "reward_from", "encoder_size"}
    network["chance"] = config.chance.model_dump(mode="json", include=names)
  return {"algorithm": config.algorithm, "spec": spec.to_dict(), "network": network}


def describe_run(config: Config, spec: EnvSpec) -> dict[str, Any]:
  """Returns the entries of `meta` for a run: those of `expected_of`, the configuration and the git commit."""
  commit = code_commit()
  settings = expected_of(config, spec) | {"config": config_to_dict(config)}
  return settings if commit is None else settings | {"commit": commit}


def code_commit(folder: Path = _ROOT) -> str | None:
  """Returns the git commit of the code, with `-dirty` if files have changed; None outside a repository."""
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


def _damaged(path: Path) -> UserError:
  return UserError(f"{path}: altered or cut since it was written; use another checkpoint")


def _read_manifest(path: Path) -> dict[str, Any]:
  if not path.is_dir() or not (path / MANIFEST).is_file():
    raise UserError(f"{path}: not a checkpoint: it has no {MANIFEST}")
  damaged = _damaged(path / MANIFEST)
  try:
    raw = read_bounded(path / MANIFEST, _MAX_MANIFEST_BYTES)
    manifest = json.loads(raw)
    digest = manifest.pop("sha256")
    is_whole = digest == hashlib.sha256(_encode(manifest)).hexdigest()
    # Comparing the raw bytes too detects altered bytes that do not change the parsed JSON.
    if not is_whole or raw != _encode(manifest | {"sha256": digest}):
      raise damaged
  except OSError as e:
    raise UserError(f"{path}: cannot be read: {reason_of(e)}") from None
  except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
    raise damaged from None
  if manifest.get("format") != FORMAT:
    raise UserError(
      f"{path}: a checkpoint of format {manifest.get('format')}; this version reads format {FORMAT}"
    )
  meta, leaves, files = (manifest.get(key) for key in ("meta", "leaves", "files"))
  is_sound = isinstance(meta, dict) and isinstance(leaves, dict) and isinstance(files, dict)
  is_sound = is_sound and all(isinstance(leaf, dict) for leaf in [*leaves.values(), files.get(ARRAYS)])
  if not is_sound or not all(isinstance(meta.get(k), int) for k in ("env_steps", "learner_steps")):
    raise damaged
  return manifest


def _read_arrays(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
  path, facts = path / ARRAYS, manifest["files"][ARRAYS]
  try:
    # The kind of the file is checked first, because reading a device or a pipe may never end.
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size != facts.get("bytes"):
      raise _damaged(path)
    return decode_arrays(path, read_arrays(path), facts.get("sha256"))
  except (OSError, ValueError) as e:
    raise UserError(f"{path}: cannot be read: {reason_of(e)}") from None


def decode_arrays(path: Path, data: bytes, digest: Any) -> dict[str, Any]:
  """Returns the arrays in the bytes of a safetensors file. Raises UserError if their SHA-256 differs."""
  if hashlib.sha256(data).hexdigest() != digest:
    raise _damaged(path)
  try:
    return safetensors.numpy.load(data)
  except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
    raise _damaged(path) from None


def _encode(manifest: Mapping[str, Any]) -> bytes:
  """Returns the only accepted encoding of a manifest."""
  return (json.dumps(manifest, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()
