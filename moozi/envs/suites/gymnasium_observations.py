"""Converts the observations of a Gymnasium environment, single or in batches, to frames."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from moozi.core.errors import UserError
from moozi.core.frame_parts import FramePart, make_parts
from moozi.envs.names import entry_names
from moozi.envs.observations import (
  FrameFormat,
  OwnObservations,
  array_format,
  cast,
  check_array,
  is_picture_with_channels_first,
  one_hot_format,
  shaped_array,
)
from moozi.envs.suites.gymnasium_masks import entry_of, observed_space
from moozi.envs.validation import check_integer, one_line, short


def frame_format(where: str, space: Any) -> FrameFormat:
  """Returns the frame format of a space; an entry `action_mask` is not part of the frame.

  Raises: UserError: the space is of an unsupported kind, or its shape or dtype cannot be a frame.
  """
  observed, select = observed_space(where, space)
  if observed is not space:
    inner = frame_format(where, observed)
    return dataclasses.replace(inner, encode=lambda x: inner.encode(select(x)))
  if isinstance(space, spaces.Box):
    return _box_format(where, space)
  if isinstance(space, spaces.Discrete):
    return one_hot_format(where, int(space.n), int(space.start))
  unsupported = UserError(
    f"{where}: its observations are {short(space)}; must be Box, Discrete, MultiDiscrete, "
    "MultiBinary, or a Dict or Tuple of these; a function in env.wrappers can change them"
  )
  # gymnasium can flatten these to one vector.
  if not isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary | spaces.Dict | spaces.Tuple):
    raise unsupported
  try:
    size, flat = spaces.flatdim(space), spaces.flatten_space(space)
  except (ValueError, NotImplementedError):
    raise unsupported from None
  if not isinstance(flat, spaces.Box):
    raise unsupported
  is_boolean = isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary)
  vector = array_format(where, (size,), bool) if is_boolean else _box_format(where, flat)

  def encode(observation: Any) -> np.ndarray:
    return vector.encode(spaces.flatten(space, _member(where, space, observation)))

  return FrameFormat(vector.shape, vector.dtype, encode, entry_names(space), _frame_parts(space))


def _frame_parts(space: Any) -> tuple[FramePart, ...]:
  """Returns the parts of `spaces.flatten` of a Dict or Tuple; empty if none is an image."""
  return make_parts([_part_of(" ".join(keys), leaf) for keys, leaf in _leaves(space, ())])


def _leaves(space: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
  """Yields the spaces in a Dict or Tuple that are neither, with their keys."""
  if not isinstance(space, spaces.Dict | spaces.Tuple):
    yield keys, space
    return
  for key, part in _parts(space).items():
    yield from _leaves(part, (*keys, str(key)))


def _part_of(name: str, space: Any) -> tuple[str, tuple[int, ...], bool, bool]:
  """Returns the arguments of `make_parts` for a space that is no Dict or Tuple."""
  if not isinstance(space, spaces.Box | spaces.MultiBinary):
    return name, (spaces.flatdim(space),), False, False
  shape = tuple(map(int, space.shape)) or (1,)
  is_bytes = isinstance(space, spaces.Box) and space.dtype == np.uint8 and bool((space.high == 255).all())
  return name, shape, is_bytes and is_picture_with_channels_first(shape), is_bytes


def _member(where: str, space: Any, x: Any) -> Any:
  """Returns an observation for `spaces.flatten`, which does not check it.

  Raises: UserError: the observation is not of the space's form. The bounds of Boxes are not checked.
  """
  if isinstance(space, spaces.Dict):
    return {key: _member(where, part, entry_of(where, x, key)) for key, part in space.spaces.items()}
  if isinstance(space, spaces.Tuple):
    if not isinstance(x, tuple | list) or len(x) != len(space.spaces):
      raise UserError(
        f"{where}: an observation {one_line(x, 80)}; its spec says a tuple of {len(space.spaces)} parts"
      )
    return tuple(_member(where, part, y) for part, y in zip(space.spaces, x, strict=True))
  if isinstance(space, spaces.Discrete):
    return check_integer(where, "observation", x, int(space.start), int(space.start) + int(space.n) - 1)
  values = shaped_array(where, x, space.shape)
  if space.dtype.kind != "f":
    values = cast(where, values, space.dtype)
  low: Any = 0
  high: Any = 1
  if isinstance(space, spaces.MultiDiscrete):
    low = np.asarray(space.start, np.int64)
    high = low + np.asarray(space.nvec, np.int64) - 1
  elif not isinstance(space, spaces.MultiBinary):
    return values
  if not ((values >= low) & (values <= high)).all():
    raise UserError(f"{where}: observation {one_line(values, 80)}; its spec says {short(space)}")
  return values


def _box_format(where: str, box: Any) -> FrameFormat:
  low = np.where(box.bounded_below, box.low.astype(np.float64), -np.inf)
  high = np.where(box.bounded_above, box.high.astype(np.float64), np.inf)
  return array_format(where, box.shape, box.dtype, low, high)


def own_observations(
  where: str, space: Any, encode: Callable[[Any], np.ndarray], mask_of: Callable[[Any], np.ndarray | None]
) -> OwnObservations:
  """Returns the form of the observations of `space`, a supported observation space.

  Args:
    where: the start of error messages (`env.name=…`).
    encode: maps an observation to its frame.
    mask_of: returns the mask of legal actions in an observation, or None.
  """

  def read(observation: Any) -> tuple[np.ndarray, np.ndarray | None, int]:
    _check(f"{where}: observation", space, observation)
    return encode(observation), mask_of(observation), 0

  def split(observations: Any) -> list[Any] | None:
    count = _count(space, observations)
    return None if count is None else [_row(where, space, observations, i, count) for i in range(count)]

  return OwnObservations(read, split)


def _parts(space: Any) -> dict[Any, Any]:
  return dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))


def _check(name: str, space: Any, value: Any) -> None:
  """Raises UserError if a value has another structure, shape or type than its space."""
  if not isinstance(space, spaces.Dict | spaces.Tuple):
    check_array(name, value, space.shape, space.dtype)
    return
  parts = _parts(space)
  is_kind = isinstance(value, Mapping if isinstance(space, spaces.Dict) else tuple)
  if not is_kind or len(value) != len(parts) or (isinstance(value, Mapping) and set(value) != set(parts)):
    found = (
      f"entries {sorted(map(str, value))}" if isinstance(value, Mapping) else f"a {type(value).__name__}"
    )
    raise UserError(f"{name}: {found}; must be of {short(space)}")
  for key, part in parts.items():
    _check(f"{name}[{key!r}]", part, value[key])


def _count(space: Any, values: Any) -> int | None:
  """Returns the number of observations in a batch of a VectorEnv; None if it is one observation."""
  if isinstance(space, spaces.Dict | spaces.Tuple):
    parts = _parts(space)
    is_kind = isinstance(values, Mapping if isinstance(space, spaces.Dict) else tuple)
    if not is_kind or len(values) != len(parts) or not parts or next(iter(parts)) not in _keys(values):
      return None  # `read` says what is wrong
    first = next(iter(parts))
    return _count(parts[first], values[first])
  shape = np.shape(values)
  return shape[0] if len(shape) == len(space.shape) + 1 and shape[0] else None


def _keys(values: Any) -> Any:
  return values if isinstance(values, Mapping) else range(len(values))


def _row(where: str, space: Any, values: Any, i: int, count: int) -> Any:
  """Returns observation i of a batch. Raises UserError if an entry is missing or of another length."""
  if isinstance(space, spaces.Dict | spaces.Tuple):
    parts = _parts(space)
    if missing := [key for key in parts if key not in _keys(values)]:
      raise UserError(f"{where}: observation: has no entry {missing[0]!r}; must be of {short(space)}")
    out = {key: _row(where, part, values[key], i, count) for key, part in parts.items()}
    return out if isinstance(space, spaces.Dict) else tuple(out.values())
  if np.shape(values)[:1] != (count,):
    raise UserError(
      f"{where}: observation: an entry of shape {list(np.shape(values))} in a batch of {count} observations"
    )
  return values[i]
