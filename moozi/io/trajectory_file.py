"""Encodes and decodes one trajectory file: a state file whose arrays are compressed columns.

The header's `meta` has the environment's spec, and the steps and lanes of the file. Each array is one column
(a field of all steps), compressed with zlib. A column has one row per step. Before compression, its bytes are
transposed: the first byte of all steps, then the second, and so on. Booleans are packed to bits. The encoding
is lossless.
"""

import dataclasses
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moozi.core.errors import UserError
from moozi.core.factors import ActionPart, Factors, Intervals
from moozi.core.pytree import fields_of
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.io import state_file
from moozi.io.state_file import StateFile, encode_state, read_state

# Memory limit in bytes for the steps of one file. TrajectoryWriter's files are far below this limit.
_MAX_STEPS_BYTES = 1 << 30
_LEVEL = 6


@dataclasses.dataclass(frozen=True)
class LaneSpan:
  """Steps start … start+num_steps-1 of a lane, whose first stored step has index 0."""

  lane: int
  start: int
  num_steps: int

  @property
  def stop(self) -> int:
    """The index after the span's last step."""
    return self.start + self.num_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrajectoryFile(StateFile):
  """The verified header of a trajectory file."""

  env_steps: tuple[int, int]  # the run's environment steps before and after this file
  spec: EnvSpec
  spans: tuple[LaneSpan, ...]  # sorted by lane

  @property
  def num_steps(self) -> int:
    """Number of steps of all lanes."""
    return sum(span.num_steps for span in self.spans)


def encode_file(
  spec: EnvSpec, env_steps: tuple[int, int], lanes: Mapping[int, tuple[int, TrajectorySample]]
) -> tuple[bytes, memoryview]:
  """Returns one file in parts. `lanes` maps a lane to (index of its first step, its steps [T, …])."""
  fields = [fields_of(steps) for _, (_, steps) in sorted(lanes.items())]
  columns = {}
  for name, (_, dtype) in _columns(spec).items():
    packed = _pack(np.concatenate([f[name] for f in fields]), dtype)
    columns[name] = np.frombuffer(zlib.compress(packed, _LEVEL), np.uint8)
  spans = [[lane, start, len(steps.action)] for lane, (start, steps) in sorted(lanes.items())]
  meta = {"spec": spec.to_dict(), "env_steps": env_steps, "lanes": spans}
  return encode_state(columns, meta)[1]


def read_header(path: Path) -> TrajectoryFile:
  """Reads and verifies a file's header, but not its columns.

  Raises: UserError: as `state_file.read_header`; or the file is not a trajectory file, or its steps take too
    much memory.
  """
  file = state_file.read_header(path)
  try:
    first, last = (_count(n) for n in file.meta["env_steps"])
    spec = parse_spec(file.meta["spec"])
    spans = tuple(LaneSpan(*(_count(n) for n in span)) for span in file.meta["lanes"])
    info = TrajectoryFile(**fields_of(file), env_steps=(first, last), spec=spec, spans=spans)
  except (ValueError, TypeError, KeyError, AttributeError):
    raise state_file.damaged(path) from None
  lanes = [span.lane for span in info.spans]
  step_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in _columns(info.spec).values())
  if info.num_steps * step_bytes > _MAX_STEPS_BYTES:
    raise UserError(f"{path}: its steps would take more than {_MAX_STEPS_BYTES >> 20} MiB of memory")
  is_sound = lanes and lanes == sorted(set(lanes)) and all(span.num_steps > 0 for span in info.spans)
  if not is_sound or info.num_steps > last - first:
    raise state_file.damaged(path)
  return info


def read_steps(info: TrajectoryFile) -> list[TrajectorySample]:
  """Returns the steps [T, …] of each span of the file.

  Raises: UserError: the file was altered or has changed since `info` was read, or a column does not match
    the header.
  """
  packed, columns, n = read_state(info.path, info.digest), _columns(info.spec), info.num_steps
  try:
    if set(packed) != set(columns):
      raise ValueError("other columns")
    out = {name: _unpack(packed[name], (n, *shape), dtype) for name, (shape, dtype) in columns.items()}
  except (zlib.error, ValueError, TypeError, AttributeError):
    raise UserError(f"{info.path}: its columns do not match its header") from None
  stops = np.cumsum([span.num_steps for span in info.spans])[:-1]
  parts = zip(*(np.split(array, stops) for array in out.values()), strict=True)
  return [TrajectorySample(**dict(zip(out, arrays, strict=True))) for arrays in parts]


def _columns(spec: EnvSpec) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
  """Returns (shape of one step, dtype) of each column."""
  bools, floats, integers = np.dtype(bool), np.dtype(np.float32), np.dtype(np.int32)
  return (
    {"frame": (spec.frame_shape, np.dtype(spec.frame_dtype))}
    | dict.fromkeys(("is_first", "is_last", "is_truncated"), ((), bools))
    | dict.fromkeys(("last_reward", "root_value"), ((), floats))
    | dict.fromkeys(("to_play", "acted_version", "searched_version"), ((), integers))
    | {"action": (spec.action_shape, np.dtype(spec.action_dtype))}
    | {"legal_actions_mask": ((spec.policy_size,), bools), "action_probs": ((spec.policy_size,), floats)}
  )


def _pack(values: np.ndarray, dtype: np.dtype) -> bytes:
  """Returns the bytes of a column [N, …], transposed: the first byte of all rows, then the second."""
  rows = np.ascontiguousarray(values, dtype.newbyteorder("<")).reshape(len(values), -1)
  return (np.packbits(rows, axis=-1) if dtype.kind == "b" else rows.view(np.uint8)).T.tobytes()


def _unpack(packed: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
  """Decompresses a column and inverts `_pack`. Raises ValueError or zlib.error if it has another size."""
  row_size = math.prod(shape[1:])
  row_bytes = (row_size + 7) // 8 if dtype.kind == "b" else row_size * dtype.itemsize
  size = shape[0] * row_bytes
  inflate = zlib.decompressobj()
  # The limit size + 1 detects a column that is too long without decompressing all of it.
  raw = inflate.decompress(packed.tobytes(), size + 1)
  if len(raw) != size or not inflate.eof or inflate.unused_data:
    raise ValueError("a column of another size")
  rows = np.ascontiguousarray(np.frombuffer(raw, np.uint8).reshape(row_bytes, shape[0]).T)
  if dtype.kind == "b":
    return np.unpackbits(rows, axis=-1, count=row_size).view(bool).reshape(shape)
  return rows.view(dtype.newbyteorder("<")).reshape(shape).astype(dtype, copy=False)


def parse_spec(data: Mapping[str, Any]) -> EnvSpec:
  """Returns the EnvSpec in a header. Raises ValueError, TypeError or KeyError if it is not valid."""
  height, width, channels = (_count(n) for n in data["frame_shape"])
  if not (height and width and channels):
    raise ValueError("an empty frame")
  texts = {"name": _printable(data["name"]), "action_names": tuple(map(_printable, data["action_names"]))}
  numbers = {"frame_shape": (height, width, channels), "num_env_actions": _count(data["num_env_actions"])}
  return EnvSpec(**dict(data) | texts | numbers | {"factors": _parse_factors(data.get("factors"))})


def _parse_factors(data: Mapping[str, Any] | None) -> Factors | Intervals | None:
  """Returns the dimensions in a header. Raises ValueError, TypeError or KeyError if they are not valid."""
  if data is None:
    return None
  parts = tuple(
    ActionPart(
      path=tuple(key if type(key) is int else _printable(key) for key in part["path"]),
      shape=tuple(map(_count, part["shape"])),
      dtype=str(part["dtype"]),
      values=tuple(map(tuple, part["values"])),
    )
    for part in data["parts"]
  )
  kind = Intervals if data.get("is_continuous") else Factors
  return kind(parts=parts, names=tuple(map(_printable, data["names"])))


def _printable(value: Any) -> str:
  """Returns the value as text. Raises ValueError for control characters, which a terminal may interpret."""
  if not str(value).isprintable():
    raise ValueError("text that is not printable")
  return str(value)


def _count(value: Any) -> int:
  """Returns the value if it is a non-negative integer below 2**62; raises ValueError otherwise."""
  if type(value) is not int or not 0 <= value < 1 << 62:
    raise ValueError(f"{value!r} is not a count")
  return value
