"""`jax.jit` without XLA's optimizations, which halves the compilation time of tests."""

import functools

import jax

fast_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
