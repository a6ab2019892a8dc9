"""Converts the observations of third-party environments to frames."""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Shaped

from moozi.core.errors import EnvValueError, UserError
from moozi.core.frame_parts import FramePart
from moozi.envs.validation import as_array, check_finite, check_integer, numeric_array, warn_once

# Larger bounds count as limits of the number type, not of the environment.
_LARGEST_BOUND = 1e9
_LARGEST_FRAME = 1 << 22
# Bytes of shape (C, H, W) are a picture with channels first if C is at most this number, and H and W are at
# least this size.
_MOST_CHANNELS, _SMALLEST_PICTURE = 16, 32
_LARGEST_FLOAT = np.finfo(np.float32).max
# A value may leave its bounds by this share of them, because bounds and values are rounded.
_ROUNDING = 1e-4
_clipped: set[str] = set()  # the environments of which a warning was given
_refuses: contextvars.ContextVar[bool] = contextvars.ContextVar("refuses", default=False)


@contextlib.contextmanager
def bounds_are_strict() -> Iterator[None]:
  """Inside this context, an observation outside its bounds raises UserError and is not clipped."""
  token = _refuses.set(True)
  try:
    yield
  finally:
    _refuses.reset(token)


class Frame(np.ndarray):
  """An array that is a frame, or frames, of a MooZi environment: [..., H, W, C] of the spec's dtype.

  It behaves like any other array. The type distinguishes a frame from an observation of the environment
  itself. `array.view(moozi.Frame)` marks an array as frames.
  """


@dataclasses.dataclass(frozen=True)
class OwnObservations:
  """The form of a third-party environment's own observations: functions that read one and split a batch.

  Attributes:
    read: maps an observation to (its frame; its mask of legal actions, or None; the player to move). Raises
      UserError where the observation has another structure, shape or type than its spec; UserError and
      EnvValueError as `FrameFormat.encode`.
    split: maps a batch of observations to a list of them; returns None if it is one observation.
  """

  read: Callable[[Any], tuple[Shaped[np.ndarray, "H W C"], Bool[np.ndarray, "E"] | None, int]]
  split: Callable[[Any], list[Any] | None]


def check_array(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> None:
  """Raises UserError, which starts with `name`, if an observation has another shape or kind of numbers.

  Integers are accepted where the dtype is a float.
  """
  given = as_array(name, value)
  kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}[np.dtype(dtype).kind]
  if given.shape != tuple(shape) or given.dtype.kind not in kinds:
    raise UserError(
      f"{name}: {given.dtype}{list(given.shape)}; must be {np.dtype(dtype)}{list(shape)}, as the environment "
      "itself returns it; a frame of MooZi is a moozi.Observation or a moozi.Frame"
    )


@dataclasses.dataclass(frozen=True)
class FrameFormat:
  """The conversion of observations to frames.

  Attributes:
    shape: (H, W, C) of a frame.
    dtype: "bool", "uint8" or "float32".
    encode: maps an observation to its frame, a fresh array. Raises UserError if the observation has another
      shape than its spec, or finite values that the spec's dtype cannot hold; EnvValueError if a value is
      not finite.
    names: names of the C planes or entries; empty if they have none.
    parts: as in `EnvSpec.frame_parts`.
  """

  shape: tuple[int, int, int]
  dtype: str
  encode: Callable[[Any], Shaped[np.ndarray, "H W C"]]
  names: tuple[str, ...] = ()
  parts: tuple[FramePart, ...] = ()


def array_format(
  where: str, shape: tuple[int, ...], dtype: Any, low: Any = -np.inf, high: Any = np.inf
) -> FrameFormat:
  """Returns the frame format of observations that are arrays.

  A scalar or a vector of D becomes [1, 1, D]; [H, W] and [H, W, C] are images, channels last. Bytes without
  an upper bound below 255, of shape [C, H, W], become [H, W, C] if `is_picture_with_channels_first`. A
  warning says how a shape is read whose channels may be first. Booleans, and bytes without an upper bound
  below 255, keep their type. All else becomes float32. An entry with two bounds is divided by their larger
  magnitude, which scales it to [-1, 1]; any other entry is not scaled. An observation with a value that is
  outside its bounds by more than rounding is clipped, with one warning for each environment name.

  Args:
    where: the start of error messages (`env.name=…`).
    low, high: bounds, broadcast to the shape; a bound above 1e9 in magnitude means no bound.

  Raises: UserError: a shape or a dtype that cannot be a frame.
  """
  dtype = np.dtype(dtype)
  if dtype.kind not in "biuf":
    raise UserError(f"{where}: observations of type {dtype}; must be booleans, integers or floats")
  lead = frame_shape(where, shape)
  low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
  is_bytes = dtype == np.uint8 and bool((high.astype(np.float64) >= 255).all())
  keeps_type = dtype.kind == "b" or is_bytes
  scaling = None
  if not keeps_type:
    scaling = _scaling(where, shape, *(bound.astype(np.float64).tobytes() for bound in (low, high)))
  is_first = _has_channels_first(where, lead, is_bytes) if len(shape) == 3 else False
  if is_first:
    lead = (lead[1], lead[2], lead[0])

  def encode(observation: Any) -> np.ndarray:
    values = shaped_array(where, observation, shape)
    if scaling is None:
      frame = cast(where, values, dtype)
    else:
      fit, factors = scaling
      frame = fit(values.astype(np.float32, copy=False)) * factors  # the product is a fresh array
    return np.moveaxis(frame, 0, -1).copy() if is_first else frame.reshape(lead)

  return FrameFormat(lead, str(dtype) if keeps_type else "float32", encode)


def one_hot_format(where: str, size: int, start: int = 0) -> FrameFormat:
  """Returns the frame format of an integer from `start` to start + size - 1: [1, 1, size] bool, one-hot."""
  shape = frame_shape(where, (size,))

  def encode(observation: Any) -> np.ndarray:
    index = check_integer(where, "observation", observation, start, start + size - 1) - start
    frame = np.zeros(shape, bool)
    frame[0, 0, index] = True
    return frame

  return FrameFormat(shape, "bool", encode)


def frame_shape(where: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
  """Returns (H, W, C) of an array's frame. Raises UserError if an array of this shape cannot be a frame."""
  shape = tuple(int(n) for n in shape)
  size = int(np.prod(shape, dtype=np.int64))
  if len(shape) > 3 or not 1 <= size <= _LARGEST_FRAME:
    stacked = "; targets.history_length stacks frames, so give single ones" if len(shape) == 4 else ""
    raise UserError(
      f"{where}: observations of shape {list(shape)}; must be vectors, [height, width] or "
      f"[height, width, channels], of at most {_LARGEST_FRAME:,} entries{stacked}"
    )
  if len(shape) < 2:
    return (1, 1, size)
  return (shape[0], shape[1], shape[2] if len(shape) == 3 else 1)


def is_picture_with_channels_first(shape: tuple[int, ...]) -> bool:
  """Returns whether bytes of this shape are read as a picture (C, H, W)."""
  return len(shape) == 3 and shape[0] <= _MOST_CHANNELS and min(shape[1:]) >= _SMALLEST_PICTURE


def _has_channels_first(where: str, shape: tuple[int, int, int], is_bytes: bool) -> bool:
  """Returns whether observations of this shape are pictures with channels first; may warn of the choice."""
  channels, height, width = shape
  if is_bytes and is_picture_with_channels_first(shape):
    single = (
      f"; if they are {channels} frames, give single ones and set targets.history_length={channels}, so that "
      "each frame is stored once"
    )
    warn_once(
      f"{where}: observations of shape {list(shape)} are read as pictures with channels first: "
      f"{height} high, {width} wide, {channels} channels{single if channels not in (1, 3) else ''}"
    )
    return True
  # A square at the end, or fewest at the start: a board or a picture whose channels may come first.
  is_square_last = channels == height != width
  may_be_first = min(height, width) >= 3 and (height == width or channels < min(height, width))
  if may_be_first and not is_square_last:
    warn_once(
      f"{where}: observations of shape {list(shape)} are read as {channels} high, {height} wide, {width} "
      "channels; if the channels come first, move them last with a wrapper (docs/custom_environment.md, "
      "Requirements); if they are stacked frames, give single ones and set targets.history_length"
    )
  return False


@functools.lru_cache(maxsize=16)
def _scaling(
  where: str, shape: tuple[int, ...], low: bytes, high: bytes
) -> tuple[Callable[[np.ndarray], np.ndarray], Float32[np.ndarray, "*shape"]]:
  """Returns the function of `_fitting` and the factors of `_factors`.

  The environments of a worker share them, so that their arrays stay in the processor's cache.

  Args:
    low, high: the bytes of the bounds in float64.
  """
  bounds = [np.frombuffer(bound, np.float64).reshape(shape) for bound in (low, high)]
  return _fitting(where, *bounds), _factors(*bounds)


def _fitting(
  where: str, low: Shaped[np.ndarray, "*shape"], high: Shaped[np.ndarray, "*shape"]
) -> Callable[[np.ndarray], np.ndarray]:
  """Returns a function that clips float32 observations to their bounds.

  An observation whose values leave their bounds only by rounding is unchanged. Where `bounds_are_strict`, the
  function raises UserError instead of clipping. It raises EnvValueError if a value is not finite.
  """
  lowest = np.where(np.abs(low.astype(np.float64)) <= _LARGEST_BOUND, low, -np.inf).astype(np.float32)
  highest = np.where(np.abs(high.astype(np.float64)) <= _LARGEST_BOUND, high, np.inf).astype(np.float32)
  bounds = np.abs(np.stack([lowest, highest]))
  slack = _ROUNDING * np.maximum(np.where(np.isfinite(bounds), bounds, 0).max(axis=0), _ROUNDING)
  least = np.maximum(lowest - slack, -_LARGEST_FLOAT)
  most = np.minimum(highest + slack, _LARGEST_FLOAT)

  def fit(x: np.ndarray) -> np.ndarray:
    is_within = (x >= least) & (x <= most)
    if np.count_nonzero(is_within) == x.size:
      return x  # and finite, as both limits are
    check_finite(where, x)
    at = tuple(int(i) for i in np.argwhere(~is_within)[0])
    text = (
      f"an observation has {x[at]:g} at {list(at)}; its bounds are {lowest[at]:g} … {highest[at]:g}; "
      "give the space the true bounds, or infinite ones"
    )
    if _refuses.get():
      raise UserError(f"{where}: {text}")
    _warn_of_clipping(where, text)
    return np.clip(x, lowest, highest)

  return fit


def shaped_array(where: str, observation: Any, shape: tuple[int, ...]) -> Shaped[np.ndarray, "..."]:
  """Returns an observation as an array. Raises UserError if it has another shape, or is not of numbers."""
  values = numeric_array(where, "an observation", observation)
  if values.shape != shape:
    raise UserError(f"{where}: an observation of shape {list(values.shape)}; its spec says {list(shape)}")
  return values


def cast(
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


def _warn_of_clipping(where: str, text: str) -> None:
  """Warns once per environment name, whatever the value."""
  if where not in _clipped:
    _clipped.add(where)
    warn_once(f"{where}: {text}; values outside are clipped")


def _factors(
  low: Shaped[np.ndarray, "*shape"], high: Shaped[np.ndarray, "*shape"]
) -> Float32[np.ndarray, "*shape"]:
  """Returns each entry's factor: 1 over the larger magnitude of its bounds.

  The factor is 1 if a bound is missing or both are 0.
  """
  magnitude = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
  is_bounded = (magnitude > 0) & (magnitude <= _LARGEST_BOUND)
  return np.asarray(1.0 / np.where(is_bounded, magnitude, 1.0), np.float32)
