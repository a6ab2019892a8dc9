"""The type of arrays in code that runs on NumPy and on JAX arrays. Imports no JAX."""

from typing import Any

# `Float[AnyArray, "B A"]` checks the shape and dtype of an array of any library. Statically it is Any: with a
# union, a function of NumPy arrays would seem to return JAX arrays too.
AnyArray = Any
