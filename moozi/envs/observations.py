"""Converts the observations of third-party environments to frames."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped

from moozi.core.errors import EnvValueError, UserError

# Larger bounds count as limits of the number type, not of the environment.
_LARGEST_BOUND = 1e9
_LARGEST_FRAME = 1 << 22


@dataclasses.dataclass(frozen=True)
class FrameFormat:
  """The conversion of observations to frames.

  Attributes:
    shape: (H, W, C) of a frame.
    dtype: "bool", "uint8" or "float32".
    encode: maps an observation to its frame, a fresh array. Raises UserError where the observation has
      another shape than its spec, or values that the spec's dtype cannot hold; the latter as EnvValueError if
      they are not finite.
    names: names of the C planes or entries; empty if they have none.
  """

  shape: tuple[int, int, int]
  dtype: str
  encode: Callable[[Any], Shaped[np.ndarray, "H W C"]]
  names: tuple[str, ...] = ()


def array_format(
  where: str, shape: tuple[int, ...], dtype: Any, low: Any = -np.inf, high: Any = np.inf
) -> FrameFormat:
  """Returns the frame format of observations that are arrays.

  A scalar or a vector of D becomes [1, 1, D]; [H, W] and [H, W, C] are images, channels last. Booleans and
  bytes with bounds 0 and 255 keep their type. All else becomes float32. A bounded entry is divided by the
  larger magnitude of its bounds, which scales it to [-1, 1]; an unbounded entry is unchanged.

  Args:
    where: the start of error messages (`env.name=…`).
    low, high: bounds, broadcast to the shape; an infinite bound means no bound.

  Raises: UserError: a shape or a dtype that cannot be a frame.
  """
  dtype = np.dtype(dtype)
  if dtype.kind not in "biuf":
    raise UserError(f"{where}: observations of type {dtype}; must be booleans, integers or floats")
  lead = frame_shape(where, shape)
  low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
  is_bytes = dtype == np.uint8 and bool((high.astype(np.float64) >= 255).all())
  keeps_type = dtype.kind == "b" or is_bytes
  factors = None if keeps_type else _factors(low, high)

  def encode(observation: Any) -> np.ndarray:
    if np.shape(observation) != shape:
      raise UserError(
        f"{where}: an observation of shape {list(np.shape(observation))}; its spec says {list(shape)}"
      )
    if factors is None:
      return _cast(where, np.asarray(observation), dtype).reshape(lead)
    frame = np.multiply(np.asarray(observation, np.float32), factors)
    return frame.reshape(lead)

  return FrameFormat(lead, str(dtype) if keeps_type else "float32", encode)


def one_hot_format(where: str, size: int, start: int = 0) -> FrameFormat:
  """Returns the frame format of `size` integers from `start` on: [1, 1, size] bool, one entry set."""
  shape = frame_shape(where, (size,))

  def encode(observation: Any) -> np.ndarray:
    index = int(observation) - start
    if not 0 <= index < size:
      raise UserError(f"{where}: observation {observation}; its spec says {start} to {start + size - 1}")
    frame = np.zeros(shape, bool)
    frame[0, 0, index] = True
    return frame

  return FrameFormat(shape, "bool", encode)


def frame_shape(where: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
  """Returns (H, W, C) of an array's frame. For other shapes raises UserError that starts with `where`."""
  shape = tuple(int(n) for n in shape)
  size = int(np.prod(shape, dtype=np.int64))
  if len(shape) > 3 or not 1 <= size <= _LARGEST_FRAME:
    raise UserError(
      f"{where}: observations of shape {list(shape)}; must be vectors, [height, width] or "
      f"[height, width, channels], of at most {_LARGEST_FRAME:,} entries"
    )
  if len(shape) < 2:
    return (1, 1, size)
  return (shape[0], shape[1], shape[2] if len(shape) == 3 else 1)


def _cast(
  where: str, observation: Shaped[np.ndarray, "*shape"], dtype: np.dtype[Any]
) -> Shaped[np.ndarray, "*shape"]:
  """Returns a copy of an observation as `dtype`. Raises UserError if that changes a value."""
  if observation.dtype == dtype:
    return observation.copy()
  with np.errstate(invalid="ignore"):
    out = observation.astype(dtype)
  if (out != observation).any():
    kind = UserError if np.isfinite(observation).all() else EnvValueError
    raise kind(
      f"{where}: an observation of {observation.dtype} has values that its spec's type {dtype} cannot hold"
    )
  return out


def _factors(
  low: Shaped[np.ndarray, "*shape"], high: Shaped[np.ndarray, "*shape"]
) -> Float32[np.ndarray, "*shape"]:
  """Returns each entry's factor: 1 over the larger magnitude of its bounds; 1 if it is unbounded."""
  magnitude = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
  is_bounded = (magnitude > 0) & (magnitude <= _LARGEST_BOUND)
  return np.asarray(1.0 / np.where(is_bounded, magnitude, 1.0), np.float32)
