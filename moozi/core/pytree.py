"""`record`: the decorator for frozen, keyword-only dataclasses that are also JAX pytrees.

Records travel between processes, and the replay process must not import JAX. Defining a record therefore
imports nothing: a class defined before JAX is imported is only listed. `register_records` registers the
listed classes; code that starts to use JAX on records calls it (docs/decisions/0001-records-without-jax.md).
"""

import dataclasses
import sys
from typing import Any, TypeVar, dataclass_transform

import numpy as np

T = TypeVar("T")

_unregistered: list[type] = []


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
  """Makes `cls` a frozen, keyword-only dataclass and a JAX pytree whose children are its fields.

  The class is registered with JAX immediately if JAX is imported, else by the next `register_records`.

  Shapes on the fields are documentation: they are not checked at run time, since JAX rebuilds records with
  leaves that are not arrays (None, shapes, placeholders).
  """
  out = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
  out.__no_type_check__ = True  # type: ignore[attr-defined]  # jaxtyping's import hook reads it
  if hasattr(sys.modules.get("jax"), "tree_util"):  # missing while JAX is still being imported
    _register(out)
  else:
    _unregistered.append(out)
  return out


def register_records() -> None:
  """Registers with JAX the record classes defined before JAX was imported. Imports JAX; idempotent.

  A process calls this before it uses JAX on records; for example, the constructor of `nn.model.Model` calls
  it. Classes defined later are registered immediately.
  """
  import jax  # noqa: F401  # imported even if no class is listed, so that later classes are registered

  while _unregistered:
    _register(_unregistered.pop())


def _register(cls: type) -> None:
  import jax

  names = [f.name for f in dataclasses.fields(cls)]
  jax.tree_util.register_dataclass(cls, data_fields=names, meta_fields=[])


def replace(rec: T, **changes: Any) -> T:
  """Returns a copy of the record with some fields changed."""
  return dataclasses.replace(rec, **changes)  # type: ignore[type-var]


def fields_of(rec: Any) -> dict[str, Any]:
  """Returns the fields by name, in order, without copying."""
  return {f.name: getattr(rec, f.name) for f in dataclasses.fields(rec)}


def map_fields(fn: Any, first: T, *rest: T) -> T:
  """Returns a record with `fn(value, *values)` of the records' values in each field. Uses no JAX."""
  changes = {
    f.name: fn(getattr(first, f.name), *(getattr(r, f.name) for r in rest))
    for f in dataclasses.fields(first)  # type: ignore[arg-type]
  }
  return dataclasses.replace(first, **changes)  # type: ignore[type-var]


def stack(records: list[T]) -> T:
  """Stacks records of equal shapes along a new first axis, in NumPy."""
  return map_fields(lambda *xs: np.stack([np.asarray(x) for x in xs]), *records)
