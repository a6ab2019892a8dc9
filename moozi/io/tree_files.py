"""Pytrees as named arrays and plain values, and back: what a file can hold without pickle."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_PLAIN = {"bool": bool, "int": int, "float": float, "str": str}
_ARRAY_KINDS = "biuf"


def flatten_tree(tree: Any) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
  """The leaves of a pytree by key path.

  Args:
    tree: leaves are NumPy or JAX arrays, JAX PRNG keys (typed), NumPy scalars, int, float, bool and str.
      None and empty containers are structure.
  Returns: arrays by key path, and for every leaf what it is, in JSON values. Plain values are in the latter,
    to the bit: an int of any size as text, a float in hexadecimal.
  Raises: ValueError: a leaf of another kind, with its key path.
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
      # Row-major and in this machine's byte order, or safetensors writes something else than it reads.
      arrays[key] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    else:
      description["value"] = (
        leaf.hex() if type(leaf) is float else leaf if type(leaf) in (bool, str) else str(leaf)
      )
  return arrays, leaves


def unflatten_tree(
  template: Any, arrays: Mapping[str, np.ndarray], leaves: Mapping[str, Mapping[str, Any]]
) -> Any:
  """The pytree that `flatten_tree` took apart, in the template's structure.

  Args:
    template: a pytree of the same structure, shapes and dtypes (`jax.eval_shape`'s result will do).
    arrays: by key path.
    leaves: by key path.
  Raises: ValueError: names the first key, in the template's order, that is missing, differs or is too many.
  """
  import jax
  import jax.numpy as jnp

  paths, structure = jax.tree_util.tree_flatten_with_path(template)
  wanted = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
  out = []
  for key, leaf in wanted.items():
    here = _describe(leaf, key)
    if key not in leaves:
      raise ValueError(f"{key} is here and not there")
    there = dict(leaves[key])
    value = there.pop("value", None)
    difference = first_difference(there, here, key)
    if difference is not None:
      raise ValueError("{} is {} there and {} here".format(*difference))
    if here["kind"] in _PLAIN:
      out.append(_plain_value(here["kind"], value, key))
      continue
    array = arrays.get(key)
    if array is None or (here["kind"] == "array" and _array_facts(array) != (here["dtype"], here["shape"])):
      raise ValueError(f"{key} is not stored as its manifest says")
    if here["kind"] == "key":
      out.append(_wrapped_key(array, here, key))
    else:
      copy = np.array(array)[()] if isinstance(leaf, np.generic) else np.array(array)
      out.append(copy if isinstance(leaf, np.ndarray | np.generic) else jnp.asarray(copy))
  extra = [key for key in leaves if key not in wanted]
  if extra:
    raise ValueError(f"{extra[0]} is there and not here")
  return jax.tree_util.tree_unflatten(structure, out)


def read_flat(
  arrays: Mapping[str, np.ndarray], leaves: Mapping[str, Mapping[str, Any]]
) -> dict[str, np.ndarray | int | float | bool | str]:
  """The flat dict of arrays and plain values that `flatten_tree` took apart, whatever its entries.

  Raises: ValueError: a leaf that is none of a flat dict of these, or is not stored as described.
  """
  out: dict[str, Any] = {}
  for key, leaf in leaves.items():
    name, kind = key[2:-2], leaf.get("kind")
    if f"['{name}']" != key or "']['" in name or kind not in ("array", *_PLAIN):
      raise ValueError(f"{key} is no entry of a flat dict")
    if kind != "array":
      out[name] = _plain_value(str(kind), leaf.get("value"), key)
      continue
    array = arrays.get(key)
    if array is None or _array_facts(array) != (leaf.get("dtype"), leaf.get("shape")):
      raise ValueError(f"{key} is not stored as its manifest says")
    out[name] = np.array(array)
  return out


def first_difference(there: Any, here: Any, key: str) -> tuple[str, Any, Any] | None:
  """The first place where two nests of JSON values differ: (dotted key, value there, value here), or None."""
  if isinstance(there, Mapping) and isinstance(here, Mapping):
    for name in [*here, *(n for n in there if n not in here)]:
      if name not in there or name not in here:
        return f"{key}.{name}", there.get(name, "missing"), here.get(name, "missing")
      found = first_difference(there[name], here[name], f"{key}.{name}")
      if found is not None:
        return found
    return None
  return None if there == here else (key, there, here)


def _describe(leaf: Any, key: str) -> dict[str, Any]:
  """What a leaf is, in JSON values, without its value."""
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
  """The name of a PRNG implementation as `wrap_key_data` takes it; the dtype says only `key<fry>`."""
  import jax

  names = ("threefry2x32", "rbg", "unsafe_rbg")
  return next((n for n in names if jax.random.key(0, impl=n).dtype == dtype), str(dtype))


def _wrapped_key(array: np.ndarray, here: Mapping[str, Any], key: str) -> Any:
  import jax
  import jax.numpy as jnp

  try:
    out = jax.random.wrap_key_data(jnp.asarray(array), impl=here["impl"])
  except (TypeError, ValueError):
    out = None
  if out is None or list(out.shape) != here["shape"]:
    raise ValueError(f"{key} is not stored as its manifest says")
  return out


def _array_facts(array: np.ndarray) -> tuple[str, list[int]]:
  return array.dtype.name, list(array.shape)


def _plain_value(kind: str, value: Any, key: str) -> Any:
  try:
    if kind == "float":
      return float.fromhex(value)
    return _PLAIN[kind](value)
  except (TypeError, ValueError):
    raise ValueError(f"{key} is not stored as its manifest says") from None
