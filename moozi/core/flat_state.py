"""The form of saved state: a flat dict of NumPy arrays, ints, floats and bools by name.

Pytrees are converted to it by key path. `io.state_file` writes it to safetensors files, which have no code.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from moozi.core.pytree import register_records

State = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
  """A state whose large part, the steps of replay, is in blocks; only blocks that have changed are saved.

  Attributes:
    head: the flat state without the blocks.
    generations: [N] int64: for each block, a number that changes when the block is written to, 0 before.
      Empty if there are no blocks.
    blocks: flat states by the number of the block. The snapshot of a run in progress has only those that are
      not on disk.
  """

  head: State
  generations: Int[np.ndarray, "N"] = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
  blocks: dict[int, State] = dataclasses.field(default_factory=dict)


# Counters are smaller than this: Python's ints have no limit, but int64 and float64 have.
_MAX_COUNT = 2**53


@dataclasses.dataclass(frozen=True)
class Entry:
  """What a state may hold under one name.

  Attributes:
    kind: "int" or "float" for one number; else the dtype of an array.
    shape: the shape of an array; None stands for any length.
    low, high: smallest and largest value.
    may_be_nan: whether NaN is allowed.
  """

  kind: str
  shape: tuple[int | None, ...] = ()
  low: float = -math.inf
  high: float = math.inf
  may_be_nan: bool = False

  def check(self, name: str, value: Any) -> None:
    """Raises ValueError if `value` does not match; the message starts with `name`."""
    array = np.asarray(value)
    if self.kind in ("int", "float"):
      is_alike = array.shape == () and array.dtype.kind in ("iu" if self.kind == "int" else "iuf")
      if not is_alike:
        raise ValueError(f"{name} is {_describe(array)}; must be one {self.kind}")
    elif array.dtype != np.dtype(self.kind) or not _fits(array.shape, self.shape):
      lengths = ", ".join("any" if size is None else str(size) for size in self.shape)
      raise ValueError(f"{name} is {_describe(array)}; must be {self.kind}[{lengths}]")
    if array.size == 0 or array.dtype.kind not in "iuf":
      return
    if array.dtype.kind == "f" and not self.may_be_nan and np.isnan(array).any():
      raise ValueError(f"{name} is NaN; must be a number")
    if self.low == -math.inf and self.high == math.inf:
      return  # without a pass over large arrays
    low, high = array.min().item(), array.max().item()
    if low < self.low or high > self.high:
      text = f"{low:.6g}" if low == high else f"{low:.6g} … {high:.6g}"
      raise ValueError(f"{name} is {text}; must be in {self.low:.6g} … {self.high:.6g}")


def counter(low: int = 0, high: int = _MAX_COUNT) -> Entry:
  """Returns the entry of an int in low … high."""
  return Entry("int", low=low, high=high)


def number(low: float = -1e300, high: float = 1e300) -> Entry:
  """Returns the entry of a finite float in low … high."""
  return Entry("float", low=low, high=high)


def check_state(state: Mapping[str, Any], entries: Mapping[str, Entry], where: str = "") -> None:
  """Checks that a state has exactly these entries.

  Args:
    where: prefix of the names in messages.

  Raises: ValueError: a name is missing or not expected, or its value has another kind, dtype or shape, or is
    out of range. The message names it.
  """
  for name, entry in entries.items():
    if name not in state:
      raise ValueError(f"{where}{name} is missing")
    entry.check(where + name, state[name])
  unknown = state.keys() - entries.keys()
  if unknown:
    raise ValueError(f"{where}{min(unknown)} is not expected")


def entries_like(state: Mapping[str, Any]) -> dict[str, Entry]:
  """Returns the entries of the states that have the names, dtypes and shapes of `state`."""
  arrays = {name: np.asarray(value) for name, value in state.items()}
  return {name: Entry(x.dtype.name, x.shape, may_be_nan=True) for name, x in arrays.items()}


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
  return len(shape) == len(expected) and all(b in (None, a) for a, b in zip(shape, expected, strict=True))


def _describe(array: Any) -> str:
  return f"{array.dtype}{list(array.shape)}"


def prefixed(prefix: str, state: Mapping[str, Any]) -> State:
  """Returns the entries, renamed from `name` to `prefix/name`."""
  return {f"{prefix}/{name}": value for name, value in state.items()}


def part(state: Mapping[str, Any], prefix: str) -> State:
  """Returns the entries under the prefix, with the prefix removed from their names; inverts `prefixed`."""
  return {name[len(prefix) + 1 :]: value for name, value in state.items() if name.startswith(f"{prefix}/")}


def leaves_of(tree: Any) -> State:
  """Returns the leaves of a pytree by key path, such as `params/MODULE/NAME`. Imports JAX.

  Raises: ValueError: two key paths have the same text.
  """
  import jax

  register_records()
  leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
  out = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
  if len(out) != len(leaves):
    raise ValueError("two key paths of the tree have the same text")
  return out


def tree_state(tree: Any) -> State:
  """Returns the leaves of a pytree of arrays by key path, copied to NumPy. Imports JAX."""
  return {name: np.array(leaf) for name, leaf in leaves_of(tree).items()}


def tree_of_state(template: Any, state: Mapping[str, Any]) -> Any:
  """Returns a pytree of NumPy arrays in the template's structure; inverts `tree_state`. Imports JAX.

  Args:
    template: a pytree with the shapes and dtypes; a result of `jax.eval_shape` suffices.

  Raises: ValueError: a leaf is missing or not expected, or has another shape or dtype; the message names it.
  """
  import jax

  out = []
  wanted = leaves_of(template)
  for name, leaf in wanted.items():
    if name not in state:
      raise ValueError(f"{name} is missing")
    value = np.asarray(state[name])
    like = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    if value.shape != like.shape or value.dtype != like.dtype:
      raise ValueError(f"{name} is {_describe(value)}; must be {_describe(like)}")
    out.append(np.array(value))
  if unknown := state.keys() - wanted.keys():
    raise ValueError(f"{min(unknown)} is not expected")
  return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(template), out)
