"""One file of steps: what they are, packed and compressed, and a checksum. Nothing in it is code.

    8 bytes    "MZTRAJ1\n"
    4 bytes    length of the header, little-endian
    header     JSON: the environment's spec, the version, which steps of which lanes, the columns
    columns    one after another, each compressed by itself with zlib
    32 bytes   SHA-256 of all that is before

The steps of a lane lie together, and of frames and masks the first byte of all steps, then the second, and so
on: what changes little from step to step is then nearly nothing. Numbers are kept to the bit.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import moozi
from moozi.core.errors import UserError
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec

FORMAT = 1
_MAGIC = b"MZTRAJ1\n"
_PREFIX = struct.Struct("<8sI")
_DIGEST_BYTES = 32
_MAX_HEADER_BYTES = 16 << 20
# Of a file's steps in memory; whoever writes them begins another file long before.
_MAX_STEPS_BYTES = 1 << 30
_LEVEL = 6

# Flags and the mask as bits, as the frames of environments that show booleans; the discount follows from the
# flags.
_BITS = ("is_first", "is_last", "is_truncated")
_PLANES = ("frame", "legal_actions_mask")
_NUMBERS = {
  "last_reward": "<f4",
  "root_value": "<f4",
  "action": "<i4",
  "acted_version": "<i4",
  "searched_version": "<i4",
}


@dataclasses.dataclass(frozen=True)
class LaneSpan:
  """Steps start … start+num_steps-1 of a lane, counted from the lane's first step in the run."""

  lane: int
  start: int
  num_steps: int

  @property
  def stop(self) -> int:
    """The index after the last one."""
    return self.start + self.num_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrajectoryFile:
  """What a file's header says; its checksum held.

  Attributes:
    path: of the file.
    env_steps: (start, stop), of the run before this file and with it; some of its steps may be in no file.
    spec: the environment's facts.
    version: of moozi, that wrote it.
    spans: which steps of which lanes it holds, in the order in which they lie.
    num_bytes: of the file.
  """

  path: Path
  env_steps: tuple[int, int]
  spec: EnvSpec
  version: str
  spans: tuple[LaneSpan, ...]
  num_bytes: int

  @property
  def num_steps(self) -> int:
    """Steps of all its lanes."""
    return sum(span.num_steps for span in self.spans)


def encode_file(
  spec: EnvSpec, env_steps: tuple[int, int], lanes: Mapping[int, tuple[int, TrajectorySample]]
) -> bytes:
  """The bytes of one file.

  Args:
    spec: the environment's facts.
    env_steps: (start, stop) over all lanes.
    lanes: by lane, the index of its first step here and its steps [T, …].
  """
  fields = [dataclasses.asdict(steps) for _, (_, steps) in sorted(lanes.items())]
  columns = {
    name: zlib.compress(_pack(name, np.concatenate([f[name] for f in fields]), spec), _LEVEL)
    for name in _shapes(spec)
  }
  header = {
    "format": FORMAT,
    "moozi": moozi.__version__,
    "spec": spec.to_dict(),
    "env_steps": list(env_steps),
    "lanes": [[lane, start, len(steps.action)] for lane, (start, steps) in sorted(lanes.items())],
    "columns": {name: len(data) for name, data in columns.items()},
  }
  text = json.dumps(header, allow_nan=False).encode()
  body = b"".join([_PREFIX.pack(_MAGIC, len(text)), text, *columns.values()])
  return body + hashlib.sha256(body).digest()


def read_header(path: Path) -> TrajectoryFile:
  """What a file holds; all of it is read once, for its checksum.

  Raises: UserError: not a trajectory file, cut or altered, or of another format.
  """
  return _parse(path, _read(path))[0]


def read_steps(info: TrajectoryFile) -> list[TrajectorySample]:
  """The steps [T, …] of each of the file's spans.

  Raises: UserError: the file has changed since, or its columns are not what its header says.
  """
  body = _read(info.path)
  again, columns = _parse(info.path, body)
  damaged = UserError(f"{info.path}: its columns are not what its header says")
  if again != info:
    raise UserError(f"{info.path}: changed while it was being read")
  out: dict[str, np.ndarray] = {}
  for name, (first, stop) in columns.items():
    size = info.num_steps * _row_bytes(name, info.spec)
    if name in _BITS:
      size = (info.num_steps + 7) // 8
    inflate = zlib.decompressobj()
    try:
      # One byte more than it may have, so that a column that is too long shows without being made.
      raw = inflate.decompress(body[first:stop], size + 1)
    except zlib.error:
      raise damaged from None
    if len(raw) != size or not inflate.eof or inflate.unused_data:
      raise damaged
    out[name] = _unpack(name, raw, info.num_steps, info.spec)
  terminal = out["is_last"] & ~out["is_truncated"]
  out["last_discount"] = np.where(terminal, 0, 1).astype(np.float32)
  ends = np.cumsum([span.num_steps for span in info.spans])[:-1]
  split = {name: np.split(array, ends) for name, array in out.items()}
  return [
    TrajectorySample(**{name: arrays[i] for name, arrays in split.items()}) for i in range(len(info.spans))
  ]


def _shapes(spec: EnvSpec) -> dict[str, tuple[int, ...]]:
  """The columns, and the shape of one step in each."""
  vector = dict.fromkeys(("legal_actions_mask", "action_probs"), (spec.num_actions,))
  scalars: dict[str, tuple[int, ...]] = dict.fromkeys((*_BITS, "to_play", *_NUMBERS), ())
  return {"frame": spec.frame_shape} | scalars | vector


def _step_bytes(spec: EnvSpec) -> int:
  """Bytes of one step in memory, booleans unpacked; at least so many."""
  return sum(math.prod(shape) * _dtype(name, spec).itemsize for name, shape in _shapes(spec).items())


def _dtype(name: str, spec: EnvSpec) -> np.dtype:
  """How a column's numbers are stored; bool where they are bits."""
  if name == "frame":
    return np.dtype(spec.frame_dtype).newbyteorder("<")
  if name in _BITS or name == "legal_actions_mask":
    return np.dtype(bool)
  return np.dtype({"to_play": "u1", "action_probs": "<f4"}.get(name) or _NUMBERS[name])


def _row_bytes(name: str, spec: EnvSpec) -> int:
  """Bytes of one step in a column, bits packed."""
  size, dtype = math.prod(_shapes(spec)[name]), _dtype(name, spec)
  return (size + 7) // 8 if dtype.kind == "b" else size * dtype.itemsize


def _pack(name: str, value: np.ndarray, spec: EnvSpec) -> bytes:
  """A column [N, …] as bytes."""
  value = np.ascontiguousarray(value, _dtype(name, spec))
  if name in _BITS:
    return np.packbits(value).tobytes()
  if name not in _PLANES:
    return value.tobytes()
  rows = value.reshape(len(value), -1)
  rows = np.packbits(rows, axis=-1) if value.dtype.kind == "b" else rows.view(np.uint8)
  return rows.T.tobytes()


def _unpack(name: str, raw: bytes, num_steps: int, spec: EnvSpec) -> np.ndarray:
  """The inverse of `_pack`, with the records' dtypes."""
  shape, dtype = _shapes(spec)[name], _dtype(name, spec)
  data = np.frombuffer(raw, np.uint8)
  if name in _BITS:
    return np.unpackbits(data, count=num_steps).view(bool)
  rows = np.ascontiguousarray(data.reshape(-1, num_steps).T) if name in _PLANES else data.copy()
  if dtype.kind == "b":
    rows = np.unpackbits(rows, axis=-1, count=math.prod(shape)).view(bool)
  out = rows.view(dtype).reshape((num_steps, *shape))
  return out.astype(np.int32) if name == "to_play" else out.astype(dtype.newbyteorder("="), copy=False)


def _read(path: Path) -> bytes:
  try:
    if not path.is_file():
      raise UserError(f"{path}: not a file; a trajectory file is needed")
    with open(path, "rb") as f:
      # A large file of a stranger's is not read to its end.
      start = f.read(len(_MAGIC))
      if start != _MAGIC:
        raise UserError(f"{path}: not a trajectory file")
      most = _MAX_HEADER_BYTES + _MAX_STEPS_BYTES
      if os.fstat(f.fileno()).st_size > most:
        raise UserError(f"{path}: larger than any trajectory file ({most >> 20} MiB at most)")
      return start + f.read(most)
  except OSError as e:
    raise UserError(f"{path}: cannot be read: {e.strerror}") from None


def _parse(path: Path, body: bytes) -> tuple[TrajectoryFile, dict[str, tuple[int, int]]]:
  """The header, and where each column lies."""
  damaged = UserError(f"{path}: cut or altered since it was written")
  if len(body) < _PREFIX.size + _DIGEST_BYTES:
    raise damaged
  if hashlib.sha256(memoryview(body)[:-_DIGEST_BYTES]).digest() != body[-_DIGEST_BYTES:]:
    raise damaged
  length = _PREFIX.unpack_from(body)[1]
  if length > min(_MAX_HEADER_BYTES, len(body) - _PREFIX.size - _DIGEST_BYTES):
    raise damaged
  try:
    header = json.loads(body[_PREFIX.size : _PREFIX.size + length])
    if header["format"] != FORMAT:
      raise UserError(f"{path}: a trajectory file of format {header['format']}; this version reads {FORMAT}")
    spec = _spec_of(header["spec"])
    first, last = (_whole(n) for n in header["env_steps"])
    info = TrajectoryFile(
      path=path,
      env_steps=(first, last),
      spec=spec,
      version=str(header["moozi"]),
      spans=tuple(LaneSpan(*(_whole(n) for n in entry)) for entry in header["lanes"]),
      num_bytes=len(body),
    )
    sizes = {name: _whole(header["columns"][name]) for name in _shapes(spec)}
  except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
    raise damaged from None
  lanes = [span.lane for span in info.spans]
  is_sound = lanes == sorted(set(lanes)) and all(span.num_steps > 0 for span in info.spans)
  ends = list(itertools.accumulate([_PREFIX.size + length, *sizes.values()]))
  if info.num_steps * _step_bytes(spec) > _MAX_STEPS_BYTES:
    raise UserError(f"{path}: its steps would take more than {_MAX_STEPS_BYTES >> 20} MiB of memory")
  if not info.spans or not is_sound or info.num_steps > last - first or ends[-1] != len(body) - _DIGEST_BYTES:
    raise damaged
  return info, dict(zip(sizes, itertools.pairwise(ends), strict=True))


def _spec_of(data: Mapping[str, Any]) -> EnvSpec:
  """The spec in a header. Raises ValueError, TypeError or KeyError where it is none."""
  plain = dict(data)
  shape: Sequence[Any] = plain["frame_shape"]
  names: Sequence[Any] = plain["action_names"]
  height, width, channels = (_whole(n) for n in shape)
  if not (height and width and channels):
    raise ValueError("an empty frame")
  plain["frame_shape"] = (height, width, channels)
  plain["name"], plain["action_names"] = str(plain["name"]), tuple(str(name) for name in names)
  # They are shown to the user, whose terminal would take what is no text for a command.
  if not all(name.isprintable() for name in (plain["name"], *plain["action_names"])):
    raise ValueError("a name that cannot be shown")
  plain["num_env_actions"] = _whole(plain["num_env_actions"])
  return EnvSpec(**plain)


def _whole(value: Any) -> int:
  """A whole number that is not negative; raises ValueError for anything else."""
  if type(value) is not int or not 0 <= value < 1 << 62:
    raise ValueError(f"{value!r} is no count")
  return value
