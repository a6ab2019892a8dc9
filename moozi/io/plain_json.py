"""Values as JSON has them: NumPy and JAX scalars as numbers, what is not finite as null."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_plain_json(value: Any) -> Any:
  """The value with dicts, lists, str, int, float, bool and None only; NaN and infinities become None.

  Args:
    value: nested mappings and sequences of plain values, and arrays of any shape.
  Raises: TypeError: something else is in it.
  """
  if value is None or isinstance(value, str | bool | int):
    return value
  if isinstance(value, float):
    return value if math.isfinite(value) else None
  if isinstance(value, Mapping):
    return {str(key): to_plain_json(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [to_plain_json(item) for item in value]
  if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
    plain = np.asarray(value).tolist()
    if not isinstance(plain, str | bool | int | float | list):
      raise TypeError(f"no JSON for an array of {np.asarray(value).dtype}")
    return to_plain_json(plain)
  raise TypeError(f"no JSON for a {type(value).__name__}")
