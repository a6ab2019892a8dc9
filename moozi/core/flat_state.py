"""The format of `get_state` and `set_state`: a flat dict of NumPy arrays, ints, floats and bools by name.

The dict is flat so that files contain no code: arrays are stored in safetensors, plain values in JSON.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from moozi.core.pytree import register_records

State = dict[str, Any]


def prefixed(prefix: str, state: Mapping[str, Any]) -> State:
  """Returns the entries, renamed from `name` to `prefix/name`."""
  return {f"{prefix}/{name}": value for name, value in state.items()}


def part(state: Mapping[str, Any], prefix: str) -> State:
  """Returns the entries under the prefix, with the prefix removed from their names; inverts `prefixed`."""
  return {name[len(prefix) + 1 :]: value for name, value in state.items() if name.startswith(f"{prefix}/")}


def tree_state(tree: Any) -> State:
  """Returns the leaves of a pytree of arrays by key path, copied to NumPy. Imports JAX."""
  import jax

  register_records()

  leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
  return {_name(path): np.array(leaf) for path, leaf in leaves}


def tree_of_state(template: Any, state: Mapping[str, Any]) -> Any:
  """Returns a pytree of NumPy arrays in the template's structure; inverts `tree_state`. Imports JAX.

  Raises: ValueError: a leaf is missing or has another shape or dtype; the message names it.
  """
  import jax

  register_records()
  leaves, structure = jax.tree_util.tree_flatten_with_path(template)
  out = []
  for path, leaf in leaves:
    name = _name(path)
    if name not in state:
      raise ValueError(f"state: {name} is missing")
    value = np.asarray(state[name])
    if value.shape != np.shape(leaf) or value.dtype != np.asarray(leaf).dtype:
      raise ValueError(
        f"state: {name} is {value.dtype}{list(value.shape)}; "
        f"must be {np.asarray(leaf).dtype}{list(np.shape(leaf))}"
      )
    out.append(np.array(value))
  return jax.tree_util.tree_unflatten(structure, out)


def _name(path: Any) -> str:
  import jax

  name: str = jax.tree_util.keystr(path, simple=True, separator="/")
  return name
