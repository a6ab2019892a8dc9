"""`jax.jit` without XLA's optimizations, which halves the compilation time of tests."""

import functools
from collections.abc import Callable
from typing import Any

import jax

fast_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def on_numpy(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
  """Takes the place of `fast_jit` in a test of a function that runs on NumPy and JAX arrays."""
  return function
