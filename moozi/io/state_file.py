"""A state file is a safetensors file with named arrays and numbers, and JSON. Reading one runs no code.

Checkpoints, resume states, blocks of replay and trajectories are state files; any reader of safetensors loads
their arrays. The entry `moozi` of the header's `__metadata__` is JSON with the format, the version of MooZi,
what the file is about (`meta`), and two SHA-256 digests. One is that of the arrays. The other is that of the
header with zeros in the place of this digest; it therefore identifies the content of the whole file. Files
can be listed by their headers, without their arrays.
"""

import dataclasses
import hashlib
import json
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy

import moozi
from moozi.core.errors import UserError, reason_of
from moozi.core.flat_state import State
from moozi.io.atomic_write import write_bytes
from moozi.io.bounded_read import open_bounded
from moozi.io.machine import memory_bytes
from moozi.io.plain_data import to_plain_json

FORMAT = 3
SUFFIX = ".safetensors"
_KEY = "moozi"
_NO_DIGEST = "0" * 64
_MAX_HEADER_BYTES = 16 << 20
# Arrays without dimensions of these dtypes are read as plain numbers.
_PLAIN = ("int64", "float64", "bool")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateFile:
  """The verified header of a state file.

  Attributes:
    meta: what the file is about, as JSON.
    version: version of MooZi that wrote the file.
    digest: SHA-256 of the header, which identifies the content.
    num_bytes: size of the file.
    names: those of the arrays.
  """

  path: Path
  meta: dict[str, Any]
  version: str
  digest: str
  num_bytes: int
  names: frozenset[str]


def encode_state(
  state: State, meta: Mapping[str, Any] = types.MappingProxyType({})
) -> tuple[str, tuple[bytes, memoryview]]:
  """Returns the digest of a state file, and its content in two parts.

  Args:
    state: arrays and numbers by name. An int, a float or a bool becomes an array without dimensions.
    meta: JSON values by name.

  Raises: ValueError: a value is not an array of bools, integers or floats, or its numbers exceed 64 bits.
  """
  arrays = {}
  for name, value in state.items():
    # safetensors writes the raw bytes, which must be in C order.
    array = np.asarray(value, order="C")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
      raise ValueError(f"{name}: a {type(value).__name__} of dtype {array.dtype} cannot be stored")
    arrays[name] = array
  about = {
    "data_sha256": _NO_DIGEST,
    "sha256": _NO_DIGEST,
    "format": FORMAT,
    "moozi": moozi.__version__,
    "meta": to_plain_json(meta),
  }
  content = safetensors.numpy.save(arrays, {_KEY: json.dumps(about, allow_nan=False)})
  stop = 8 + int.from_bytes(content[:8], "little")
  data = memoryview(content)[stop:]
  # The placeholders are the first zeros: safetensors writes the metadata before the names.
  header = content[:stop].replace(_NO_DIGEST.encode(), hashlib.sha256(data).hexdigest().encode(), 1)
  digest = hashlib.sha256(header).hexdigest()
  return digest, (header.replace(_NO_DIGEST.encode(), digest.encode(), 1), data)


def write_state(path: Path, state: State, meta: Mapping[str, Any]) -> None:
  """Writes a state file atomically; arguments and errors are those of `encode_state` and `write_bytes`."""
  write_bytes(path, *encode_state(state, meta)[1])


def read_header(path: Path) -> StateFile:
  """Reads and verifies a file's header, but not its arrays.

  Raises: UserError: the file is missing or unreadable, was cut, has an altered header, is not a state file,
    is larger than a third of the memory, or has another format.
  """
  try:
    with _open(path) as file:
      return _read_header(path, file)[0]
  except (OSError, ValueError) as e:
    raise UserError(f"{path}: cannot be read: {reason_of(e)}") from None


def read_state(path: Path, digest: str) -> State:
  """Returns the state in the file with this digest: writable arrays, and plain ints, floats and bools.

  Raises: UserError: the file cannot be read, is damaged, or has other content.
  """
  try:
    with _open(path) as file:
      found, length, data_digest = _read_header(path, file)
      if found.digest != digest:
        raise damaged(path)
      file.seek(0)
      # With a size, read allocates all of it at first.
      content = file.read(found.num_bytes)
  except (OSError, ValueError) as e:
    raise UserError(f"{path}: cannot be read: {reason_of(e)}") from None
  if hashlib.sha256(memoryview(content)[length:]).hexdigest() != data_digest:
    raise damaged(path)
  try:
    arrays = safetensors.numpy.load(content)
  except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
    raise damaged(path) from None
  return {name: _plain(array) for name, array in arrays.items()}


def damaged(path: Path) -> UserError:
  """Returns the error of a file whose content is not what MooZi wrote."""
  return UserError(f"{path}: altered or cut since it was written, or not a file of this kind")


def _plain(array: np.ndarray) -> Any:
  return array.item() if array.shape == () and array.dtype.name in _PLAIN else array


def _open(path: Path) -> BinaryIO:
  # Decoding makes a copy.
  return open_bounded(path, memory_bytes() // 3)


def _read_header(path: Path, file: BinaryIO) -> tuple[StateFile, int, str]:
  """Reads, verifies and parses the header of an open file; also returns its length and the arrays' digest."""
  num_bytes = file.seek(0, os.SEEK_END)
  file.seek(0)
  start = file.read(8)
  length = int.from_bytes(start, "little")
  if length > min(_MAX_HEADER_BYTES, num_bytes - 8):
    raise damaged(path)
  header = start + file.read(length)
  try:
    names = json.loads(header[8:])
    about = json.loads(names.pop("__metadata__")[_KEY])
    digest, version, meta, data_digest = (about[key] for key in ("sha256", "moozi", "meta", "data_sha256"))
    whole = header.replace(digest.encode(), _NO_DIGEST.encode(), 1)
    size = len(header) + max((entry["data_offsets"][1] for entry in names.values()), default=0)
    # A terminal may interpret control characters.
    is_sound = isinstance(meta, dict) and version.isprintable() and size == num_bytes
    if not is_sound or hashlib.sha256(whole).hexdigest() != digest:
      raise damaged(path)
    form = about["format"]
  except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
    raise damaged(path) from None
  if form != FORMAT:
    raise UserError(f"{path}: a file of format {form!r:.40}; this version of MooZi reads format {FORMAT}")
  found = StateFile(
    path=path, meta=meta, version=version, digest=digest, num_bytes=num_bytes, names=frozenset(names)
  )
  return found, len(header), data_digest
