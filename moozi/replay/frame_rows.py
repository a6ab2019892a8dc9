"""The rows in which replay stores frames: small, and exact. Imports no JAX."""

import math

import numpy as np
from jaxtyping import Num, Shaped

from moozi.core.pytree import replace
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec

# As `ops.history.normalize_frame` and the environments scale bytes.
_SCALE = np.float32(1.0 / 255.0)


class FrameRows:
  """Converts frames to rows and back, without changing a value.

  Frames of bool become bits. In float32 frames with `frame_parts` of bytes, these parts, which were divided
  by 255, become bytes again, and every other number becomes its four bytes. Other frames keep their numbers.

  Attributes:
    size, dtype: the number of entries and the dtype of a row.
  """

  def __init__(self, spec: EnvSpec) -> None:
    self._shape, self._frame_size = spec.frame_shape, math.prod(spec.frame_shape)
    self._is_packed = spec.frame_dtype == "bool"
    is_float = spec.frame_dtype == "float32"
    self._parts = spec.frame_parts if is_float and any(part.is_bytes for part in spec.frame_parts) else ()
    self.size, self.dtype = self._frame_size, np.dtype(spec.frame_dtype)
    if self._is_packed:
      self.size, self.dtype = (self._frame_size + 7) // 8, np.dtype(np.uint8)
    elif self._parts:
      self.dtype = np.dtype(np.uint8)
      self.size = sum((part.stop - part.start) * (1 if part.is_bytes else 4) for part in self._parts)

  def are_rows(self, frames: Shaped[np.ndarray, "T B ..."]) -> bool:
    """Returns whether these are rows [T, B, R] of frames of bool, which `packed` has made."""
    return self._is_packed and frames.dtype == self.dtype and frames.ndim == 3

  def can_pack(self, frames: Shaped[np.ndarray, "T B ..."]) -> bool:
    """Returns whether these are frames of bool of the environment's shape."""
    return self._is_packed and frames.dtype == np.bool_ and frames.shape[2:] == self._shape

  def encode(self, frames: Shaped[np.ndarray, "T B H W C"]) -> Num[np.ndarray, "T B R"]:
    """Returns the rows of frames that `check` accepts."""
    flat = frames.reshape((*frames.shape[:2], -1))
    if self._is_packed:
      return np.packbits(flat.astype(np.bool_, copy=False), axis=-1)
    if not self._parts:
      return flat
    columns = []
    for part in self._parts:
      numbers = flat[..., part.start : part.stop]
      columns.append(_as_bytes(numbers) if part.is_bytes else np.ascontiguousarray(numbers).view(np.uint8))
    return np.concatenate(columns, axis=-1)

  def decode(self, rows: Num[np.ndarray, "... R"]) -> Shaped[np.ndarray, "... H W C"]:
    if self._is_packed:
      rows = np.unpackbits(rows, axis=-1, count=self._frame_size).view(np.bool_)
    elif self._parts:
      rows = self._numbers(rows)
    return rows.reshape(rows.shape[:-1] + self._shape)

  def _numbers(self, rows: Num[np.ndarray, "... R"]) -> Shaped[np.ndarray, "... D"]:
    out, at = np.empty((*rows.shape[:-1], self._frame_size), np.float32), 0
    for part in self._parts:
      numbers = out[..., part.start : part.stop]
      size = numbers.shape[-1] * (1 if part.is_bytes else 4)
      column = rows[..., at : at + size]
      if part.is_bytes:
        np.multiply(column, _SCALE, out=numbers)
      else:
        numbers[...] = np.ascontiguousarray(column).view(np.float32)
      at += size
    return out

  def check(self, frames: Shaped[np.ndarray, "... H W C"]) -> None:
    """Raises ValueError if a part of bytes has other values than bytes divided by 255."""
    flat = frames.reshape((*frames.shape[:-3], -1))
    for part in self._parts:
      numbers = flat[..., part.start : part.stop]
      if part.is_bytes and (_as_bytes(numbers) * _SCALE != numbers).any():
        raise ValueError(f"frame has values in {part.name!r} that are not bytes divided by 255")


def packed(segment: TrajectorySample, spec: EnvSpec) -> TrajectorySample:
  """Returns a segment [T, B, ...] to send to another process, with frames of bool as rows [T, B, R].

  Rows take about an eighth of the bytes, and replay stores rows. Frames of another dtype or shape stay as
  they are; replay refuses the segment if they do not fit the spec.
  """
  rows, frames = FrameRows(spec), np.asarray(segment.frame)
  return replace(segment, frame=rows.encode(frames)) if rows.can_pack(frames) else segment


def unpacked(segment: TrajectorySample, spec: EnvSpec) -> TrajectorySample:
  """Inverts `packed`."""
  rows, frames = FrameRows(spec), np.asarray(segment.frame)
  return replace(segment, frame=rows.decode(frames)) if rows.are_rows(frames) else segment


def _as_bytes(numbers: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
  return np.rint(np.clip(numbers, 0, 1) * np.float32(255)).astype(np.uint8)
