"""The observations of a Gymnasium environment as a user has them: single ones, and batches of a VectorEnv."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from moozi.core.errors import UserError
from moozi.envs.observations import OwnObservations, check_array
from moozi.envs.validation import short


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
