"""The one decorator that makes a record: a frozen, keyword-only dataclass that is also a JAX pytree.

Records travel between processes, and the replay process must not import JAX. So the decorator
registers a class with JAX at once where JAX is already loaded, and queues it otherwise;
`register_queued` empties the queue and is called by what traces records (`moozi.nn`, `moozi.agent`,
`moozi.baselines`, `moozi.envs.jax.rules`). See docs/decisions/0001-records-without-jax.md.
"""

import dataclasses
import sys
from typing import Any, TypeVar, dataclass_transform

import numpy as np

T = TypeVar("T")

_STATIC = "moozi_static"
_queue: list[type] = []


def static_field(**kwargs: Any) -> Any:
  """A record field that is part of the tree's structure (hashable), not a leaf."""
  return dataclasses.field(metadata={_STATIC: True}, **kwargs)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(static_field,))
def record(cls: type[T]) -> type[T]:
  """Makes `cls` a frozen, keyword-only dataclass and a JAX pytree whose leaves are its fields."""
  out = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
  if "jax" in sys.modules and hasattr(sys.modules["jax"], "tree_util"):
    _register(out)
  else:
    _queue.append(out)
  return out


def register_queued() -> None:
  """Registers with JAX every record defined before JAX was imported. Imports JAX."""
  while _queue:
    _register(_queue.pop())


def _register(cls: type) -> None:
  import jax

  fields = dataclasses.fields(cls)
  jax.tree_util.register_dataclass(
    cls,
    data_fields=[f.name for f in fields if not f.metadata.get(_STATIC)],
    meta_fields=[f.name for f in fields if f.metadata.get(_STATIC)],
  )


def replace(rec: T, **changes: Any) -> T:
  """A copy of the record with some fields changed."""
  return dataclasses.replace(rec, **changes)  # type: ignore[type-var]


def fields_of(rec: Any) -> dict[str, Any]:
  """The record's fields by name, in order, without copying (a record, or a record class's instance)."""
  return {f.name: getattr(rec, f.name) for f in dataclasses.fields(rec)}


def map_fields(fn: Any, first: T, *rest: T) -> T:
  """Applies `fn(leaf, *leaves)` field by field in plain Python: a tree map that needs no JAX."""
  changes = {
    f.name: fn(getattr(first, f.name), *(getattr(r, f.name) for r in rest))
    for f in dataclasses.fields(first)  # type: ignore[arg-type]
    if not f.metadata.get(_STATIC)
  }
  return dataclasses.replace(first, **changes)  # type: ignore[type-var]


def stack(records: list[T], axis: int = 0) -> T:
  """Stacks the arrays of many equal records along a new axis, in NumPy."""
  return map_fields(lambda *xs: np.stack([np.asarray(x) for x in xs], axis=axis), *records)
