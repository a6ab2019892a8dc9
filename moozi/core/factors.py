"""The dimensions of actions: their values and names, and the environment's own form of an action.

`Factors` are those of joint actions, which have numbers; `Intervals` are those of continuous actions.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int

from moozi.core.types import AnyArray

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
    shape, dtype: the array's.
    values: for each entry, row by row, its possible values in increasing order, at least 2. With a float
      dtype they are evenly spaced floats, else integers. In `Intervals`: the two bounds of each entry.
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
class _Dimensions:
  """D dimensions: the entries of the parts of an environment's own action, in order.

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

  @functools.cached_property
  def values(self) -> tuple[tuple[float, ...], ...]:
    """The possible values of each dimension, in increasing order; for continuous actions, the bounds."""
    return tuple(values for part in self.parts for values in part.values)

  def named(self, texts: Sequence[str]) -> str:
    """Returns the text of an action from those of its values, such as `throttle=+0.67 gear=2`."""
    return " ".join(map("=".join, zip(self.names, texts, strict=True)))

  def split(self, owns: Any) -> list[Any]:
    """Splits arrays [N, …], or a dict or tuple of them, into the list of N own actions; a list is unchanged.

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

  def _numbers(self, text: str) -> list[float]:
    """Returns the number that a text has for each dimension, such as `0.67 0` or `gas=0.67 brake=0`.

    Raises: ValueError: a dimension is missing, or a value is not a number.
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
    return numbers

  def _arrays(self, own: Any) -> list[np.ndarray]:
    """Returns the parts of an own action in float64. Raises ValueError if it has another form or shape."""
    out = []
    for part in self.parts:
      try:
        array = np.asarray(_at(own, part.path)).astype(np.float64, casting="safe")
      except (KeyError, IndexError, TypeError, ValueError):
        array = None
      if array is None or array.shape != part.shape:
        where = "".join(f"[{key!r}]" for key in part.path)
        raise ValueError(f"action{where}: must be numbers of shape {list(part.shape)}")
      out.append(array)
    return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factors(_Dimensions):
  """The D dimensions of joint actions.

  A joint action chooses one value in each dimension. Joint actions are numbered in the order of their rows of
  value indices; the index of the last dimension changes fastest.
  """

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.num_joint_actions > MAX_JOINT_ACTIONS:
      count = self.num_joint_actions
      text = f"{count:,}" if count < 10**15 else f"10^{int(math.log10(count))}"
      raise ValueError(
        f"{text} joint actions of {len(self.values)} dimensions, must be at most {MAX_JOINT_ACTIONS:,}"
      )

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
    return self.named(self.texts(joint_action))

  def parse(self, text: str) -> int:
    """Returns the joint action of a text: a value for each dimension, such as `0.67 0` or `gas=0.67 brake=0`.

    A float is rounded to the nearest value of its dimension.

    Raises: ValueError: a dimension is missing, or a value is not a number, is out of bounds or, where the
      values are integers, is not one of them.
    """
    numbers = self._numbers(text)
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

  def joint_action(self, own: Any) -> int:
    """Returns the joint action whose values are nearest to an environment's own action.

    Raises: ValueError: the action has another form or shape, or a value is out of bounds or, where the values
      are integers, not one of them.
    """
    numbers = np.concatenate([array.ravel() for array in self._arrays(own)]).tolist()
    return self.index([_nearest(*of) for of in zip(self.names, numbers, self.values, strict=True)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intervals(_Dimensions):
  """The D dimensions of continuous actions. An action is a row of D float32, in units of the environment."""

  num_joint_actions = 1
  """The product of `sizes`: a policy has one entry in each dimension."""

  def __post_init__(self) -> None:
    super().__post_init__()
    for part in self.parts:
      if not part.is_continuous or any(len(values) != 2 for values in part.values):
        raise ValueError(f"dtype={part.dtype!r}: continuous actions must be floats with two bounds")

  @functools.cached_property
  def sizes(self) -> tuple[int, ...]:
    """The number of entries of each dimension in a policy."""
    return (1,) * len(self.values)

  @functools.cached_property
  def low(self) -> Float32[np.ndarray, "D"]:
    return np.array([low for low, _ in self.values], np.float32)

  @functools.cached_property
  def high(self) -> Float32[np.ndarray, "D"]:
    return np.array([high for _, high in self.values], np.float32)

  def texts(self, row: Float[AnyArray, "D"]) -> tuple[str, ...]:
    """Returns the value of each dimension as text, such as `+0.67`."""
    return tuple(map(value_text, np.asarray(row).tolist()))

  def name(self, row: Float[AnyArray, "D"]) -> str:
    """Returns the text of an action, such as `throttle=+0.67`."""
    return self.named(self.texts(row))

  def parse(self, text: str) -> Float32[np.ndarray, "D"]:
    """Returns the row of a text: a value for each dimension, such as `0.35 -1` or `gas=0.35 brake=0`.

    Raises: ValueError: a dimension is missing, or a value is not a number or is out of bounds.
    """
    return self.row(np.array(self._numbers(text)))

  def own_action(self, row: Float[AnyArray, "D"]) -> Any:
    """Returns the environment's own form of an action: an array, or a dict or tuple of them."""
    return self._own(np.asarray(row), ())

  def own_actions(self, rows: Float[AnyArray, "N D"]) -> Any:
    """Returns the own forms of N actions: arrays [N, …], or a dict or tuple of them."""
    return self._own(np.asarray(rows), (len(rows),))

  def _own(self, rows: Float[np.ndarray, "*N D"], lead: tuple[int, ...]) -> Any:
    arrays, at = [], 0
    for part in self.parts:
      low, high = np.array(part.values, part.dtype).T
      # A bound in float32 may be outside of the bound in float64.
      values = np.clip(rows[..., at : at + len(low)].astype(part.dtype), low, high)
      arrays.append((part.path, values.reshape((*lead, *part.shape))))
      at += len(low)
    return nest(arrays)

  def row(self, own: Any) -> Float32[np.ndarray, "D"]:
    """Returns the row of an environment's own action, or of a row.

    Raises: ValueError: the action has another form or shape, or a value that is outside of the bounds.
    """
    if isinstance(own, np.ndarray) and own.shape == self.low.shape and own.dtype.kind == "f":
      given = own
    else:
      given = np.concatenate([array.ravel() for array in self._arrays(own)])
    with np.errstate(over="ignore"):  # infinity is out of bounds
      out = given.astype(np.float32)
    is_within = (out >= self.low) & (out <= self.high)
    if not is_within.all():  # also NaN
      d = int(np.argmin(is_within))
      low, high = self.values[d]
      raise ValueError(f"action={given[d]:g}: must be from {low:g} to {high:g} in {self.names[d]}")
    return out


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
  """Returns nested dicts and tuples with each part at its path; the part itself if its path is ()."""
  out: dict[str | int, list[Any]] = {}
  for path, part in parts:
    if not path:
      return part
    out.setdefault(path[0], []).append((path[1:], part))
  nested = {key: nest(inner, make_dict, make_tuple) for key, inner in out.items()}
  is_dict = any(isinstance(key, str) for key in nested)
  return make_dict(nested) if is_dict else make_tuple(nested.values())
