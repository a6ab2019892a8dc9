"""Array types for functions that run on NumPy and on JAX arrays. Imports no JAX."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
  import jax

  AnyArray = np.ndarray | jax.Array
else:
  # jaxtyping checks the shape and dtype of any array type; without JAX here it cannot be named.
  AnyArray = Any
