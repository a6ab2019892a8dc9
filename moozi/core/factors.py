"""The dimensions of joint actions: their values and names, and the environment's own form of an action."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

MAX_JOINT_ACTIONS = 2**31 - 2
"""Joint actions are numbered by int32, with the dummy."""
_DTYPES = (
  "float32",
  "float64",
  "int8",
  "int16",
  "int32",
  "int64",
  "uint8",
  "uint16",
  "uint32",
  "uint64",
  "bool",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionPart:
  """An array of an environment's own action.

  Attributes:
    path: the keys that lead to it: texts in a dict, integers in a tuple; () if it is the whole action.
    shape, dtype: of the array.
    values: of each entry, row by row, its possible values in increasing order, at least 2. They are floats if
      the dtype is: these divide the space evenly.
  """

  path: tuple[str | int, ...]
  shape: tuple[int, ...]
  dtype: str
  values: tuple[tuple[float, ...], ...]

  def __post_init__(self) -> None:
    if self.dtype not in _DTYPES:
      raise ValueError(f"dtype={self.dtype!r}: must be one of {', '.join(_DTYPES)}")
    if math.prod(self.shape) != len(self.values):
      raise ValueError(f"shape={self.shape}: must have {len(self.values)} entries, as values")
    for values in self.values:
      if len(values) < 2 or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        raise ValueError(f"values={values}: must be at least 2 finite numbers that rise")

  @property
  def is_continuous(self) -> bool:
    return self.dtype.startswith("float")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factors:
  """The D dimensions of joint actions: the entries of the parts of an environment's own action, in order.

  A joint action chooses one value in each dimension. It is numbered by the row of its value indices; the last
  dimension changes first.

  Attributes:
    parts: the arrays of an action.
    names: one printable name for each dimension.
  """

  parts: tuple[ActionPart, ...]
  names: tuple[str, ...]

  def __post_init__(self) -> None:
    if not self.values:
      raise ValueError("factors: no dimension; must have at least one")
    if len(self.names) != len(self.values) or not all(name.isprintable() for name in self.names):
      raise ValueError(f"factors.names={self.names}: must be {len(self.values)} printable texts")
    if self.num_joint_actions > MAX_JOINT_ACTIONS:
      count = self.num_joint_actions
      text = f"{count:,}" if count < 10**15 else f"10^{int(math.log10(count))}"
      raise ValueError(
        f"{text} joint actions of {len(self.values)} dimensions, must be at most {MAX_JOINT_ACTIONS:,}"
      )

  @functools.cached_property
  def values(self) -> tuple[tuple[float, ...], ...]:
    """The possible values of each dimension, in increasing order."""
    return tuple(values for part in self.parts for values in part.values)

  @functools.cached_property
  def sizes(self) -> tuple[int, ...]:
    """The number of values of each dimension."""
    return tuple(map(len, self.values))

  @functools.cached_property
  def num_joint_actions(self) -> int:
    return math.prod(self.sizes)

  def row(self, joint_action: int) -> tuple[int, ...]:
    """Returns the index of the joint action's value in each dimension."""
    return tuple(int(i) for i in np.unravel_index(joint_action, self.sizes))

  def texts(self, joint_action: int) -> tuple[str, ...]:
    """Returns the value of each dimension as text, such as `+0.67`."""
    rows = zip(self.values, self.row(joint_action), strict=True)
    return tuple(value_text(values[i]) for values, i in rows)

  def name(self, joint_action: int) -> str:
    """Returns the text of a joint action, such as `throttle=+0.67 gear=2`."""
    return " ".join(map("=".join, zip(self.names, self.texts(joint_action), strict=True)))

  def parse(self, text: str) -> int:
    """Returns the joint action of a text: a value for each dimension, such as `0.67 0` or `gas=0.67 brake=0`.

    Raises: ValueError: a dimension is missing, or a value is not one of its dimension.
    """
    rest, found = text, []
    if "=" in text:
      for name in sorted(self.names, key=len, reverse=True):  # a name may end with another one
        match = re.search(rf"(?:^|(?<=[\s,])){re.escape(name)}\s*=\s*([^\s,]+)", rest)
        if match is not None:
          found.append((self.names.index(name), match[1]))
          rest = f"{rest[: match.start()]} {rest[match.end() :]}"
    else:
      found, rest = list(enumerate(re.split(r"[\s,]+", text.strip(" ,")))), ""
    try:
      numbers = [float(number) for _, number in sorted(found)]
    except ValueError:
      numbers = []
    if len(numbers) != len(self.names) or rest.strip(" ,"):
      raise ValueError(f"{text!r}: must be a value for each of {', '.join(self.names)}")
    return self.index([_nearest(*of) for of in zip(self.names, numbers, self.values, strict=True)])

  def index(self, row: Sequence[int]) -> int:
    """Returns the joint action of a row of value indices."""
    return int(np.ravel_multi_index(tuple(row), self.sizes))

  def own_action(self, joint_action: int) -> Any:
    """Returns the environment's own form of a joint action: an array, or a dict or tuple of them."""
    row, arrays = iter(self.row(joint_action)), []
    for part in self.parts:
      chosen = [values[next(row)] for values in part.values]
      arrays.append((part.path, np.array(chosen, part.dtype).reshape(part.shape)))
    return nest(arrays)

  def own_actions(self, joint_actions: Int[np.ndarray, "N"]) -> Any:
    """Returns the own forms of N joint actions: arrays [N, …], or a dict or tuple of them."""
    owns = [self.own_action(action) for action in np.asarray(joint_actions).tolist()]
    arrays = []
    for part in self.parts:
      rows = [_at(own, part.path) for own in owns]
      arrays.append((part.path, np.array(rows, part.dtype).reshape(len(owns), *part.shape)))
    return nest(arrays)

  def split(self, owns: Any) -> list[Any]:
    """Returns the N own actions in arrays [N, …] or a dict or tuple of these; returns a list as it is.

    Raises: ValueError: the arrays have another form, or different numbers of rows.
    """
    if isinstance(owns, list):
      return owns
    try:
      arrays = [(part.path, np.asarray(_at(owns, part.path))) for part in self.parts]
      num_rows = {len(array) for _, array in arrays}
    except (KeyError, IndexError, TypeError, ValueError):
      num_rows = set()
    if len(num_rows) != 1:
      raise ValueError("actions: must have one row for each action")
    return [nest((path, array[i]) for path, array in arrays) for i in range(num_rows.pop())]

  def joint_action(self, own: Any) -> int:
    """Returns the joint action whose values are nearest to an environment's own action.

    Raises: ValueError: the action has another form or shape, or a value outside the bounds or, where the
      values are integers, between them.
    """
    row: list[int] = []
    for part in self.parts:
      try:
        array = np.asarray(_at(own, part.path)).astype(np.float64, casting="safe")
      except (KeyError, IndexError, TypeError, ValueError):
        array = None
      if array is None or array.shape != part.shape:
        where = "".join(f"[{key!r}]" for key in part.path)
        raise ValueError(f"action{where}: must be numbers of shape {list(part.shape)}")
      names = self.names[len(row) : len(row) + array.size]
      row += [_nearest(*of) for of in zip(names, array.ravel().tolist(), part.values, strict=True)]
    return self.index(row)


def _nearest(name: str, x: float, values: Sequence[float]) -> int:
  """Returns the index of the nearest value; integers must be met. Raises ValueError if there is none."""
  tolerance = 1e-6 * max(1.0, abs(values[0]), abs(values[-1]))
  if not values[0] - tolerance <= x <= values[-1] + tolerance:  # also NaN
    raise ValueError(f"action={x:g}: must be from {values[0]:g} to {values[-1]:g} in {name}")
  index = int(np.argmin(np.abs(np.array(values) - x)))
  if isinstance(values[0], int) and x != values[index]:
    raise ValueError(f"action={x:g}: must be one of {', '.join(map(str, values[:20]))} in {name}")
  return index


def bins(low: float, high: float, num: int) -> tuple[float, ...]:
  """Returns `num` values that divide an interval evenly and include its ends."""
  return tuple(np.linspace(low, high, num).tolist())


def value_text(value: float) -> str:
  """Returns a value of a dimension as text: `+0.67`, `0`, or an integer as it is."""
  return str(value) if isinstance(value, int) else f"{round(value, 3) + 0.0:+.3g}" if value else "0"


def _at(own: Any, path: tuple[str | int, ...]) -> Any:
  for key in path:
    own = own[key]
  return own


def nest(
  parts: Iterable[tuple[tuple[str | int, ...], Any]],
  make_dict: Callable[[dict[Any, Any]], Any] = dict,
  make_tuple: Callable[[Iterable[Any]], Any] = tuple,
) -> Any:
  """Returns the dicts and tuples that the paths of parts lead through; the part itself if its path is ()."""
  out: dict[str | int, list[Any]] = {}
  for path, part in parts:
    if not path:
      return part
    out.setdefault(path[0], []).append((path[1:], part))
  nested = {key: nest(inner, make_dict, make_tuple) for key, inner in out.items()}
  is_dict = any(isinstance(key, str) for key in nested)
  return make_dict(nested) if is_dict else make_tuple(nested.values())
