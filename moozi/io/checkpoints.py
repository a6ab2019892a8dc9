"""Checkpoints: a folder with arrays in a safetensors file and a JSON manifest that vouches for it. No pickle.

A checkpoint is written beside its place and renamed into it, so that it is there whole or not at all. The
manifest holds the SHA-256 of the arrays and of itself: safetensors alone restores an altered byte in silence.
"""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy

import moozi
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.flat_state import State
from moozi.core.spec import EnvSpec
from moozi.io.atomic_write import sync_folder, write_synced
from moozi.io.code_version import code_commit
from moozi.io.config import config_to_dict
from moozi.io.plain_json import to_plain_json
from moozi.io.run_directory import check_name
from moozi.io.tree_files import first_difference, flatten_tree, read_flat, unflatten_tree

FORMAT = 1
MANIFEST = "manifest.json"
ARRAYS = "arrays.safetensors"
BEST = "best.json"
_MAX_MANIFEST_BYTES = 64 << 20
_LEFT_BEHIND = re.compile(r"\.(?P<name>.+)\.\d+\.(?P<kind>tmp|old)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
  """What a checkpoint's manifest says; `meta` is all of it that the caller gave."""

  path: Path
  env_steps: int
  learner_steps: int
  meta: dict[str, Any]

  @property
  def name(self) -> str:
    """The folder's own name."""
    return self.path.name


def save_checkpoint(directory: Path, name: str, state: Any, meta: Mapping[str, Any]) -> Path:
  """Writes `directory/name`, whole or not at all; one of that name is replaced.

  Args:
    directory: the run's folder of checkpoints.
    name: a plain folder name.
    state: a pytree of arrays, PRNG keys, and plain int, float, bool and str.
    meta: JSON values; `env_steps` and `learner_steps` must be there, `spec` and `network` are what
      `load_checkpoint` compares.
  Returns: the checkpoint's folder.
  Raises: ValueError: meta lacks a key, or a leaf is nothing that can be stored.
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
  temporary = directory / f".{name}.{os.getpid()}.tmp"
  old = directory / f".{name}.{os.getpid()}.old"
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
    # Nothing half-written stays, what a full disk left neither.
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
  sync_folder(directory)
  return final


def load_checkpoint(path: Path, template: Any, expected: Mapping[str, Any] | None = None) -> Any:
  """The state in a checkpoint, in the template's structure.

  Args:
    path: the checkpoint's folder.
    template: a pytree like the one that was saved; shapes and dtypes count, values do not.
    expected: entries of `meta` that must be equal, such as `spec` and `network`.
  Returns: the state; JAX arrays where the template has them, NumPy arrays and plain values elsewhere.
  Raises: UserError: not a checkpoint, altered or cut, or of another network or environment (with the first
    key that differs).
  """
  manifest = _read_manifest(path)
  _check_expected(path, manifest["meta"], expected or {})
  arrays = _read_arrays(path, manifest)
  try:
    return unflatten_tree(template, arrays, manifest["leaves"])
  except ValueError as e:
    raise UserError(f"{path}: a checkpoint of another network or environment: {e}") from None


def load_flat(path: Path) -> tuple[State, dict[str, Any]]:
  """The flat state that `save_checkpoint` was given, of whatever entries it has, and its `meta`.

  Raises: UserError: not a checkpoint, altered or cut, or not of a flat state.
  """
  manifest = _read_manifest(path)
  try:
    return read_flat(_read_arrays(path, manifest), manifest["leaves"]), manifest["meta"]
  except ValueError as e:
    raise UserError(f"{path}: not a flat state: {e}") from None


def read_checkpoint_info(path: Path, expected: Mapping[str, Any] | None = None) -> CheckpointInfo:
  """What the manifest says, without reading the arrays.

  Args:
    path: the checkpoint's folder.
    expected: entries of `meta` that must be equal, such as `spec` and `network`.
  Raises: UserError: not a checkpoint, an altered manifest, or of another network or environment.
  """
  meta = _read_manifest(path)["meta"]
  _check_expected(path, meta, expected or {})
  return CheckpointInfo(
    path=path, env_steps=meta["env_steps"], learner_steps=meta["learner_steps"], meta=meta
  )


def expected_of(config: Config, spec: EnvSpec) -> dict[str, Any]:
  """What a manifest says of the algorithm, environment and network it belongs to, and must say to fit
  them.
  """
  network = config.network.model_dump(mode="json")
  if config.algorithm == "ppo":
    network = config.ppo.network.model_dump(mode="json") | {"history_length": config.ppo.history_length}
    if not config.ppo.scale_frames:  # named where it is not what it always was
      network["scale_frames"] = False
  # Whether something is hidden follows from the environment's name, and older manifests do not say.
  env = {key: value for key, value in spec.to_dict().items() if key != "is_perfect_information"}
  return {"algorithm": config.algorithm, "spec": env, "network": network}


def describe_run(config: Config, spec: EnvSpec) -> dict[str, Any]:
  """What a run's manifests say beside their counters: `expected_of`, its settings, and the code's commit."""
  commit = code_commit()
  settings = expected_of(config, spec) | {"config": config_to_dict(config)}
  return settings if commit is None else settings | {"commit": commit}


def list_checkpoints(directory: Path) -> list[CheckpointInfo]:
  """The checkpoints of a run by environment step, then learner step; damaged ones are among them no more.

  Returns: those whose manifest is whole. The arrays are not read.
  """
  return scan_checkpoints(directory)[0]


def scan_checkpoints(directory: Path) -> tuple[list[CheckpointInfo], dict[str, str]]:
  """What `list_checkpoints` returns, and by name why others are not among them.

  Returns: (checkpoints, {name: reason}); a folder without a manifest is no checkpoint and not named.
  """
  out, damaged = [], {}
  for path in directory.iterdir() if directory.is_dir() else ():
    if path.name.startswith(".") or not (path / MANIFEST).exists():
      continue
    try:
      out.append(read_checkpoint_info(path))
    except UserError as error:
      damaged[path.name] = str(error)
  return sorted(out, key=lambda c: (c.env_steps, c.learner_steps, c.name)), damaged


def mend_checkpoints(directory: Path) -> None:
  """Clears away what a process that was killed while it saved has left; nobody may be saving there.

  A checkpoint that was just being replaced comes back.
  """
  for path in directory.glob(".*") if directory.is_dir() else ():
    left = _LEFT_BEHIND.fullmatch(path.name)
    if left is None:
      continue
    if left["kind"] == "old" and not (directory / left["name"]).exists():
      os.rename(path, directory / left["name"])
    else:
      shutil.rmtree(path, ignore_errors=True)


def find_checkpoint(directory: Path, which: str | None = None) -> CheckpointInfo:
  """One checkpoint of a run.

  Args:
    directory: the run's folder of checkpoints.
    which: None or "last" is the latest; "best" of the evaluations while training; a name;
      an environment step (the nearest checkpoint); or a path.
  Raises: UserError: there is none.
  """
  if which == "best":
    name = read_best(directory)
    if name is not None:
      return read_checkpoint_info(directory / name)
    if list_checkpoints(directory):
      raise UserError(
        f"{directory}: no evaluation has left a best checkpoint; `moozi train` keeps one from its first "
        "evaluation on, unless checkpoint.keep_best=false"
      )
  if which not in (None, "last", "best"):
    assert which is not None
    for path in (directory / which, Path(which)):
      if which and "\0" not in which and len(which) < 256 and path.is_dir():
        return read_checkpoint_info(path)
  found = list_checkpoints(directory)
  if not found:
    raise UserError(
      f"{directory}: holds no checkpoint; `moozi train` leaves one there every checkpoint.period_s seconds, "
      "and when it ends"
    )
  if which in (None, "last"):
    return found[-1]
  if which is not None and which.isascii() and which.isdigit():
    return min(found, key=lambda c: (abs(c.env_steps - int(which)), -c.learner_steps))
  names = ", ".join(c.name for c in found[-4:])
  raise UserError(
    f"checkpoint={which!r}: no such checkpoint; allowed are last, best, an environment step, or a name: "
    + names
  )


def read_best(directory: Path) -> str | None:
  """The name of the checkpoint with the best evaluation while training; None: there is none."""
  try:
    # A pipe or a device in its place would be read for ever.
    if not (directory / BEST).is_file():
      return None
    name = json.loads((directory / BEST).read_text("utf-8"))["name"]
    check_name(name, "checkpoint")
  except (OSError, ValueError, KeyError, TypeError, RecursionError, UserError):
    return None
  return str(name) if (directory / name).is_dir() else None


def _check_expected(path: Path, meta: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
  # One that names no algorithm is older than the choice.
  meta = {"algorithm": "muzero"} | dict(meta)
  for key, value in expected.items():
    difference = first_difference(meta.get(key), to_plain_json(value), key)
    if difference is not None:
      where, there, here = difference
      kind = {"network": "network", "spec": "environment"}.get(key, key)
      raise UserError(f"{path}: a checkpoint of another {kind}: {where} is {there} there and {here} here")


def _read_manifest(path: Path) -> dict[str, Any]:
  if not path.is_dir() or not (path / MANIFEST).is_file():
    raise UserError(f"{path}: not a checkpoint: it has no {MANIFEST}")
  damaged = UserError(f"{path / MANIFEST}: altered or cut since it was written; use another checkpoint")
  try:
    if (path / MANIFEST).stat().st_size > _MAX_MANIFEST_BYTES:
      raise damaged
    raw = (path / MANIFEST).read_bytes()
    manifest = json.loads(raw)
    digest = manifest.pop("sha256")
    rest = _encode(manifest)
    whole = digest == hashlib.sha256(rest).hexdigest() and raw == _encode(manifest | {"sha256": digest})
  except OSError as e:
    raise UserError(f"{path}: cannot be read: {e.strerror}") from None
  except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
    raise damaged from None
  if not whole:
    raise damaged
  if manifest.get("format") != FORMAT:
    raise UserError(
      f"{path}: a checkpoint of format {manifest.get('format')}; this version reads format {FORMAT}"
    )
  meta, leaves, files = (manifest.get(key) for key in ("meta", "leaves", "files"))
  shaped = isinstance(meta, dict) and isinstance(leaves, dict) and isinstance(files, dict)
  shaped = shaped and all(isinstance(leaf, dict) for leaf in leaves.values())
  shaped = shaped and isinstance(files.get(ARRAYS), dict)
  if not shaped or not all(isinstance(meta.get(k), int) for k in ("env_steps", "learner_steps")):
    raise damaged
  return manifest


def _read_arrays(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
  damaged = UserError(f"{path / ARRAYS}: altered or cut since it was written; use another checkpoint")
  try:
    # Asked first: a device or a pipe in its place would be read for ever.
    facts = (path / ARRAYS).stat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_size != manifest["files"][ARRAYS].get("bytes"):
      raise damaged
    data = (path / ARRAYS).read_bytes()
  except OSError as e:
    raise UserError(f"{path / ARRAYS}: cannot be read: {e.strerror}") from None
  if hashlib.sha256(data).hexdigest() != manifest["files"][ARRAYS].get("sha256"):
    raise damaged
  try:
    return safetensors.numpy.load(data)
  except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
    raise damaged from None


def _encode(manifest: Mapping[str, Any]) -> bytes:
  """The one spelling of a manifest, so that an altered byte anywhere shows."""
  return (json.dumps(manifest, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()
