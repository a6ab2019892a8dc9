"""Converts pytrees to named arrays and plain values, which are stored without pickle."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from moozi.io.plain_data import first_difference

Leaves = Mapping[str, Mapping[str, Any]]

_PLAIN = {"bool": bool, "int": int, "float": float, "str": str}
_ARRAY_KINDS = "biuf"


def flatten_tree(tree: Any) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
  """Flattens a pytree by key path.

  Args:
    tree: a pytree whose leaves are NumPy or JAX arrays, typed JAX PRNG keys, NumPy scalars, int, float, bool
      or str. None and empty containers are not leaves.
  Returns: the arrays by key path, and a JSON description of every leaf by key path. The description of a
    plain value has its exact value: an int as decimal text, a float as hexadecimal text.
  Raises: ValueError: a leaf has another type; the message names its key path.
  """
  import jax

  arrays: dict[str, np.ndarray] = {}
  leaves: dict[str, dict[str, Any]] = {}
  for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
    key = jax.tree_util.keystr(path)
    leaves[key] = description = _describe(leaf, key)
    if description["kind"] == "key":
      leaf = jax.random.key_data(leaf)
    if "shape" in description:
      array = np.asarray(leaf)
      # safetensors writes the raw bytes, which must be in C order and native byte order.
      arrays[key] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    else:
      kind = description["kind"]
      description["value"] = leaf.hex() if kind == "float" else str(leaf) if kind == "int" else leaf
  return arrays, leaves


def unflatten_tree(template: Any, arrays: Mapping[str, np.ndarray], leaves: Leaves) -> Any:
  """Inverts `flatten_tree`. The template may be a result of `jax.eval_shape`.

  Raises: ValueError: a key path is missing or unexpected, or its leaf differs from the template. The message
    names the first such key path.
  """
  import jax

  paths, structure = jax.tree_util.tree_flatten_with_path(template)
  wanted = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
  out = []
  for key, leaf in wanted.items():
    expected = _describe(leaf, key)
    if key not in leaves:
      raise ValueError(f"{key} is missing")
    found = {name: value for name, value in leaves[key].items() if name != "value"}
    difference = first_difference(found, expected, key)
    if difference is not None:
      raise ValueError("{} is {}, expected {}".format(*difference))
    value = _read_leaf(key, leaves[key], arrays)
    if expected["kind"] == "array":
      # Indexing converts the array to a NumPy scalar if the template has one.
      value = value[()] if isinstance(leaf, np.generic) else value
      value = value if isinstance(leaf, np.ndarray | np.generic) else jax.numpy.asarray(value)
    out.append(value)
  extra = [key for key in leaves if key not in wanted]
  if extra:
    raise ValueError(f"{extra[0]} is not expected")
  return jax.tree_util.tree_unflatten(structure, out)


def read_flat(
  arrays: Mapping[str, np.ndarray], leaves: Leaves
) -> dict[str, np.ndarray | int | float | bool | str]:
  """Inverts `flatten_tree` for a flat dict of arrays and plain values, without a template.

  Raises: ValueError: a leaf is not an entry of a flat dict, or does not match its description.
  """
  out: dict[str, Any] = {}
  for key, leaf in leaves.items():
    name = key[2:-2]
    if f"['{name}']" != key or "']['" in name or leaf.get("kind") not in ("array", *_PLAIN):
      raise ValueError(f"{key} is not an entry of a flat dict")
    out[name] = _read_leaf(key, leaf, arrays)
  return out


def _describe(leaf: Any, key: str) -> dict[str, Any]:
  """Returns a leaf's kind, dtype and shape as JSON values."""
  import jax

  for kind, plain in _PLAIN.items():
    if type(leaf) is plain:
      return {"kind": kind}
  dtype = getattr(leaf, "dtype", None)
  if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
    return {"kind": "key", "impl": _key_impl(dtype), "shape": list(leaf.shape)}
  if dtype is None or np.dtype(dtype).kind not in _ARRAY_KINDS:
    raise ValueError(f"{key}: a {type(leaf).__name__} of dtype {dtype} cannot be stored")
  return {"kind": "array", "dtype": np.dtype(dtype).newbyteorder("=").name, "shape": list(leaf.shape)}


def _key_impl(dtype: Any) -> str:
  """Returns the name of a PRNG implementation for `wrap_key_data`, which the dtype (`key<fry>`) lacks."""
  import jax

  names = ("threefry2x32", "rbg", "unsafe_rbg")
  return next((n for n in names if jax.random.key(0, impl=n).dtype == dtype), str(dtype))


def _read_leaf(key: str, leaf: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
  """Returns a leaf's value: a plain value, a NumPy array or a JAX PRNG key.

  Raises: ValueError: the stored value does not match the description.
  """
  kind, value, array = leaf["kind"], leaf.get("value"), arrays.get(key)
  try:
    if kind in _PLAIN:
      return float.fromhex(value) if kind == "float" else _PLAIN[kind](value)  # type: ignore[arg-type]
    if kind == "key":
      import jax

      out = jax.random.wrap_key_data(jax.numpy.asarray(array), impl=leaf["impl"])
      facts: tuple[Any, Any] = (leaf["impl"], list(out.shape))
    else:
      out = np.array(array)
      facts = (out.dtype.name, list(out.shape))
    if facts == (leaf.get("impl", leaf.get("dtype")), leaf.get("shape")):
      return out
  except (TypeError, ValueError, OverflowError):
    pass
  raise ValueError(f"{key} is not stored as its manifest says")
