"""Finds the array library of arrays. Imports NumPy only."""

from typing import Any

import numpy as np


def array_namespace(*arrays: Any) -> Any:
  """The array module of the arguments: NumPy, or the library of the arrays that are not NumPy's (jax.numpy).

  Plain numbers count as NumPy arrays.
  """
  for array in arrays:
    if isinstance(array, (np.ndarray, np.generic)) or not hasattr(array, "__array_namespace__"):
      continue
    return array.__array_namespace__()
  return np
