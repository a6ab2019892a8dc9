"""The type of arrays in code that runs on NumPy and on JAX arrays. Imports no JAX."""

from typing import Any

# `Float[AnyArray, "B A"]` checks the shape and dtype of an array of any library. For type checkers it is Any.
# A union would declare that a function of NumPy arrays may return JAX arrays.
AnyArray = Any
