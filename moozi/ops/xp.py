"""Which array library an array belongs to. Imports NumPy only."""

from typing import Any

import numpy as np


def array_namespace(*arrays: Any) -> Any:
  """The array module of the arguments: NumPy for NumPy arrays and plain numbers, else theirs (jax.numpy).

  Where NumPy arrays meet arrays of another library, the other library is returned.
  """
  for array in arrays:
    if isinstance(array, (np.ndarray, np.generic)) or not hasattr(array, "__array_namespace__"):
      continue
    return array.__array_namespace__()
  return np
