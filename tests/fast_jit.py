"""`jax.jit` for tests of values: without XLA's optimizations, compilation takes half the time."""

import functools

import jax

fast_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
