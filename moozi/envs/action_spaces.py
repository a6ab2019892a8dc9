"""Reads the action spaces of Gymnasium and dm_env: numbered actions, or the dimensions of actions.

An entry of a continuous space becomes `num_bins` values, evenly spaced from its low to its high bound. With
`num_bins` 0, actions are continuous.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from dm_env import specs
from pydantic import AfterValidator, Field

from moozi.core.errors import UserError
from moozi.core.factors import MAX_JOINT_ACTIONS, ActionPart, Factors, Intervals, bins
from moozi.core.spec import MAX_ENUMERATED
from moozi.envs.names import array_entries
from moozi.envs.validation import MAX_ACTIONS, check_integer, check_num_actions, short

DEFAULT_BINS = 7
"""An odd number, so that the middle of the interval, often 0, is a value."""

MAX_DIMENSIONS = 30
"""With two values each, 31 dimensions have more than `MAX_JOINT_ACTIONS` joint actions."""

BINS = "number of values of each dimension of a continuous action space; 0: none, actions are continuous"
Path = tuple[str | int, ...]


def check_bins(num_bins: int) -> int:
  """Returns `num_bins`. Raises ValueError if it is 1, because one value leaves no choice."""
  if num_bins == 1:
    raise ValueError("must be 0, for continuous actions, or at least 2")
  return num_bins


ActionBins = Annotated[int, Field(ge=0, le=1001), AfterValidator(check_bins)]


def own_bins(where: str, env: Any) -> int:
  """Returns the attribute `action_bins` of a user's environment; `DEFAULT_BINS` if it has none.

  Raises: UserError: the attribute is neither 0 nor a whole number from 2 to 1,001.
  """
  found = getattr(getattr(env, "unwrapped", env), "action_bins", DEFAULT_BINS)
  if type(found) is int and found == 0:
    return 0
  return check_integer(where, "action_bins", found, 2, 1001)


def num_actions_of(where: str, space: Any, factors: Factors | Intervals | None) -> int:
  """Returns the number of actions of a space or spec.

  With dimensions it is the number of joint actions; with continuous actions it is 1.

  Raises: UserError: there are no dimensions, and the number is not from 1 to `MAX_ACTIONS`.
  """
  if factors is not None:
    return factors.num_joint_actions
  count = space.n if hasattr(space, "n") else int(space.maximum) - int(space.minimum) + 1
  return check_num_actions(where, int(count))


def joint_names(factors: Factors | Intervals | None) -> tuple[str, ...]:
  """Returns the names of the joint actions if each has an entry of its own in a policy, else ()."""
  if not isinstance(factors, Factors) or factors.num_joint_actions > MAX_ENUMERATED:
    return ()
  return tuple(map(factors.name, range(factors.num_joint_actions)))


def gymnasium_factors(where: str, space: Any, num_bins: int) -> Factors | Intervals | None:
  """Returns the dimensions of a Gymnasium action space; None for a Discrete one.

  Args:
    where: the start of error messages (`env.name=…`).
    space: Discrete, Box, MultiDiscrete, MultiBinary, or a Dict or Tuple of these.

  Raises: UserError: the space or its bounds are not supported, it has too many dimensions or joint actions,
    or `num_bins` is 0 and an entry is not a float.
  """
  from gymnasium import spaces

  if isinstance(space, spaces.Discrete):
    return None
  return _factors(where, space, list(_gymnasium_parts(where, space, (), num_bins)), num_bins)


def dm_env_factors(where: str, spec: Any, num_bins: int) -> Factors | Intervals | None:
  """Returns the dimensions of the actions of a dm_env environment; None if they are one integer.

  Args:
    where: the start of error messages (`env.name=…`).
    spec: a BoundedArray of numbers, or a dict or tuple of these.

  Raises: UserError: the spec or its bounds are not supported, it has too many dimensions or joint actions, or
    `num_bins` is 0 and an entry is not a float.
  """
  if isinstance(spec, specs.BoundedArray) and spec.dtype.kind in "iu" and spec.shape == ():
    return None
  return _factors(where, spec, list(_dm_env_parts(where, spec, (), num_bins)), num_bins)


def _too_many(where: str, space: Any) -> UserError:
  return UserError(
    f"{where}: its actions are {short(space)}, of {math.prod(space.shape):,} dimensions; must be at most "
    f"{MAX_DIMENSIONS}"
  )


def _entries(where: str, space: Any, parts: Any) -> dict[str | int, Any]:
  """Returns the entries of a dict or tuple of action spaces, by their keys."""
  is_dict = isinstance(parts, Mapping)
  inner: dict[str | int, Any] = dict(parts if is_dict else enumerate(parts))
  if not inner or (is_dict and not all(isinstance(key, str) for key in inner)):
    raise UserError(f"{where}: its actions have {short(space)}; must have entries, of a dict named by texts")
  return inner


def _dm_env_parts(where: str, spec: Any, path: Path, num_bins: int) -> Iterator[ActionPart]:
  # The environment would receive a plain tuple in place of a tuple with names.
  if isinstance(spec, Mapping) or type(spec) is tuple:
    for key, part in _entries(where, spec, spec).items():
      yield from _dm_env_parts(where, part, (*path, key), num_bins)
    return
  if not isinstance(spec, specs.BoundedArray) or spec.dtype.kind not in "iuf":
    raise UserError(
      f"{where}: its actions are {short(spec)}; must be a BoundedArray or a DiscreteArray, or a dict or "
      "tuple of these"
    )
  if num_bins and math.prod(spec.shape) > MAX_DIMENSIONS:
    raise _too_many(where, spec)
  low, high = (np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum))
  hint = "return finite bounds from action_spec, in the environment or in a class that wraps it"
  yield _box(where, spec, path, spec.dtype, low, high, num_bins, hint)


def _gymnasium_parts(where: str, space: Any, path: Path, num_bins: int) -> Iterator[ActionPart]:
  from gymnasium import spaces

  match space:
    case spaces.Dict() | spaces.Tuple():
      for key, part in _entries(where, space, space.spaces).items():
        yield from _gymnasium_parts(where, part, (*path, key), num_bins)
    case spaces.Discrete():
      start, stop = int(space.start), int(space.start) + int(space.n)
      yield _part(where, space, path, (), space.dtype, [range(start, stop)])
    case spaces.MultiDiscrete() | spaces.MultiBinary() | spaces.Box() if (
      num_bins and math.prod(space.shape) > MAX_DIMENSIONS
    ):
      raise _too_many(where, space)
    case spaces.MultiDiscrete():
      starts = np.broadcast_to(getattr(space, "start", 0), space.nvec.shape).ravel().tolist()
      ranges = [range(a, a + n) for a, n in zip(starts, space.nvec.ravel().tolist(), strict=True)]
      yield _part(where, space, path, space.shape, space.dtype, ranges)
    case spaces.MultiBinary():
      yield _part(where, space, path, space.shape, space.dtype, [range(2)] * int(np.prod(space.shape)))
    case spaces.Box():
      hint = "bound them by a wrapper, such as gymnasium.wrappers.TransformAction with a bounded action_space"
      yield _box(where, space, path, space.dtype, space.low, space.high, num_bins, hint)
    case _:
      raise UserError(
        f"{where}: its actions are {short(space)}; must be Discrete, Box, MultiDiscrete, MultiBinary, or a "
        "Dict or Tuple of these"
      )


def _box(
  where: str, space: Any, path: Path, dtype: Any, low: np.ndarray, high: np.ndarray, num_bins: int, hint: str
) -> ActionPart:
  """Returns the part of an array with bounds; integers keep all their values.

  Args:
    hint: how a user gives the array finite bounds, for an error.
  """
  bounds = list(zip(np.ravel(low).tolist(), np.ravel(high).tolist(), strict=True))
  is_float = np.dtype(dtype).kind == "f"
  for a, b in bounds:
    with np.errstate(over="ignore"):
      low32, high32 = np.float32(a), np.float32(b)
    if not (np.isfinite(low32) and np.isfinite(high32)):
      in_float32 = " in float32" if np.isfinite([a, b]).all() else ""
      raise UserError(f"{where}: its actions are {short(space)}, without finite bounds{in_float32}; {hint}")
    # Continuous actions are float32, where close bounds are equal.
    if a >= b or (is_float and not num_bins and low32 >= high32):
      raise UserError(f"{where}: its actions are {short(space)}, from {a:g} to {b:g}; low must be below high")
  if not is_float and any(b - a >= MAX_ACTIONS for a, b in bounds):
    raise UserError(f"{where}: its actions are {short(space)}; an entry has more than {MAX_ACTIONS:,} values")
  # Of continuous actions, the two bounds.
  values = [bins(a, b, num_bins or 2) if is_float else range(int(a), int(b) + 1) for a, b in bounds]
  return _part(where, space, path, np.shape(low), dtype, values)


def _part(where: str, space: Any, path: Path, shape: Any, dtype: Any, values: Any) -> ActionPart:
  try:
    rows = tuple(map(tuple, values))
    return ActionPart(path=path, shape=tuple(shape), dtype=np.dtype(dtype).name, values=rows)
  except ValueError as error:
    raise UserError(f"{where}: its actions are {short(space)}: {error}") from None


def _factors(where: str, space: Any, parts: list[ActionPart], num_bins: int) -> Factors | Intervals:
  names = tuple(name for part in parts for name in _names(part))
  if not num_bins and not all(part.is_continuous for part in parts):
    raise UserError(
      f"{where}: its actions are {short(space)}; action_bins=0 needs an action space of floats alone"
    )
  try:
    return (Factors if num_bins else Intervals)(parts=tuple(parts), names=names)
  except ValueError as error:
    raise UserError(f"{where}: its actions are {short(space)}: {error}{_fewer_bins(parts)}") from None


def _fewer_bins(parts: list[ActionPart]) -> str:
  """Returns a hint with the largest number of bins whose joint actions can be numbered; "" if none is."""
  sizes = [(len(values), part.is_continuous) for part in parts for values in part.values]
  for num_bins in range(max((n for n, is_binned in sizes if is_binned), default=0) - 1, 1, -1):
    if math.prod(min(n, num_bins) if is_binned else n for n, is_binned in sizes) <= MAX_JOINT_ACTIONS:
      return f"; action_bins is at most {num_bins} here"
  return ""


def _names(part: ActionPart) -> Iterator[str]:
  """Yields `arm 0`, `arm 1` for the entries of a part `arm`, and `arm` if it has only one entry."""
  name = " ".join("".join(c if c.isprintable() else "?" for c in str(key)) for key in part.path)
  for text in array_entries(name, part.shape):
    yield (text if name else text.strip()) or "action"
