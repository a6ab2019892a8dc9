"""Frames out of the observations of environments that were not written for moozi."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from moozi.core.errors import UserError

# Bounds beyond this are a type's limits, not the environment's.
_LARGEST_BOUND = 1e9
_LARGEST_FRAME = 1 << 22


@dataclasses.dataclass(frozen=True)
class FrameFormat:
  """How observations become frames.

  Attributes:
    shape: [H, W, C] of a frame.
    dtype: "bool", "uint8" or "float32".
    encode: an observation to its frame, a fresh array. Raises UserError where it is not of the shape that
      was promised, or not finite.
  """

  shape: tuple[int, int, int]
  dtype: str
  encode: Callable[[Any], np.ndarray]


def array_format(
  where: str, shape: tuple[int, ...], dtype: Any, low: Any = -np.inf, high: Any = np.inf
) -> FrameFormat:
  """The frames of observations that are arrays.

  A scalar or a vector of D becomes [1, 1, D]; [H, W] and [H, W, C] are images, channels last. Booleans stay
  booleans; bytes from 0 to 255 stay bytes; all else becomes float32, where an entry that is bounded is
  divided by the larger magnitude of its bounds (zero stays zero, and it lies in [-1, 1]), and one that is not
  bounded is left as it is.

  Args:
    where: begins an error (`env.name=…`).
    shape: of an observation.
    dtype: of an observation.
    low, high: bounds, broadcast to the shape; infinite where there are none.

  Raises: UserError: a shape or a dtype that cannot be a frame.
  """
  dtype = np.dtype(dtype)
  if dtype.kind not in "biuf":
    raise UserError(f"{where}: observations of type {dtype}; supported are booleans, integers and floats")
  frame_shape = _frame_shape(where, shape)
  low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
  if dtype.kind == "b":
    return FrameFormat(frame_shape, "bool", _as_is(where, shape, frame_shape, np.dtype(bool)))
  is_bytes = dtype == np.uint8 and bool((high.astype(np.float64) >= 255).all())
  if is_bytes:
    return FrameFormat(frame_shape, "uint8", _as_is(where, shape, frame_shape, dtype))
  return FrameFormat(frame_shape, "float32", _scaled(where, shape, frame_shape, _factors(low, high)))


def one_hot_format(where: str, size: int, start: int = 0) -> FrameFormat:
  """The frames of observations that are whole numbers from `start` on: [1, 1, size] bool, one entry set."""
  shape = _frame_shape(where, (size,))

  def encode(observation: Any) -> np.ndarray:
    index = int(observation) - start
    if not 0 <= index < size:
      raise UserError(f"{where}: observation {observation}; it promised {start} to {start + size - 1}")
    frame = np.zeros(shape, bool)
    frame[0, 0, index] = True
    return frame

  return FrameFormat(shape, "bool", encode)


def _frame_shape(where: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
  shape = tuple(int(n) for n in shape)
  size = int(np.prod(shape, dtype=np.int64))
  if len(shape) > 3 or not 1 <= size <= _LARGEST_FRAME:
    raise UserError(
      f"{where}: observations of shape {list(shape)}; supported are vectors, [height, width] and "
      f"[height, width, channels], of at most {_LARGEST_FRAME:,} entries"
    )
  if len(shape) < 2:
    return (1, 1, size)
  return (shape[0], shape[1], shape[2] if len(shape) == 3 else 1)


def _factors(low: np.ndarray, high: np.ndarray) -> np.ndarray:
  """What each entry is multiplied by, float32."""
  low, high = low.astype(np.float64), high.astype(np.float64)
  magnitude = np.maximum(np.abs(low), np.abs(high))
  is_bounded = (magnitude > 0) & (magnitude <= _LARGEST_BOUND)
  return (1.0 / np.where(is_bounded, magnitude, 1.0)).astype(np.float32)


def _as_is(
  where: str, shape: tuple[int, ...], frame_shape: tuple[int, int, int], dtype: np.dtype
) -> Callable[[Any], np.ndarray]:
  def encode(observation: Any) -> np.ndarray:
    _check_shape(where, observation, shape)
    return np.array(observation, dtype).reshape(frame_shape)

  return encode


def _scaled(
  where: str, shape: tuple[int, ...], frame_shape: tuple[int, int, int], factors: np.ndarray
) -> Callable[[Any], np.ndarray]:
  def encode(observation: Any) -> np.ndarray:
    _check_shape(where, observation, shape)
    frame = np.multiply(np.asarray(observation, np.float32), factors)
    if not np.isfinite(frame).all():
      raise UserError(f"{where}: an observation that is not finite")
    return frame.reshape(frame_shape)

  return encode


def _check_shape(where: str, observation: Any, shape: tuple[int, ...]) -> None:
  if np.shape(observation) != shape:
    raise UserError(
      f"{where}: an observation of shape {list(np.shape(observation))}; it promised {list(shape)}"
    )
