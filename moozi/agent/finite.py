"""Skipping updates whose loss or gradient is not finite; pure functions for compiled updates."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PyTree

ALL_FINITE = -1
"""The result of `first_not_finite` where all metrics are finite."""


def first_not_finite(metrics: Mapping[str, Any], names: Sequence[str]) -> Int32[Array, ""]:
  """The index in `names` of the first metric that is not finite; ALL_FINITE if there is none."""
  is_finite = jnp.isfinite(jnp.stack([metrics[name] for name in names]))
  return jnp.where(jnp.all(is_finite), ALL_FINITE, jnp.argmin(is_finite)).astype(jnp.int32)


def select(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
  """The tree `new` if the condition holds, else `old`; a NaN in one does not reach the other."""
  return jax.tree_util.tree_map(lambda n, o: jnp.where(condition, n, o), new, old)


def finite_mean(values: Float[Array, "..."]) -> Float[Array, ""]:
  """The mean of the finite values (a skipped update does not hide the others); NaN if there are none."""
  return jnp.mean(values, where=jnp.isfinite(values))
