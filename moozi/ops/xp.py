"""Finds the library of given arrays. Imports NumPy only."""

from typing import Any

import numpy as np


def array_namespace(*arrays: Any) -> Any:
  """Returns the module of the first array that is not NumPy's (for example jax.numpy), else NumPy.

  Plain numbers count as NumPy arrays.
  """
  for array in arrays:
    if isinstance(array, (np.ndarray, np.generic)) or not hasattr(array, "__array_namespace__"):
      continue
    return array.__array_namespace__()
  return np
