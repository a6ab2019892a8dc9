"""Updates that change nothing because a term in them is not finite; pure functions for compiled updates."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

Array = Any

SOUND = -1
"""What `first_not_finite` says where all is finite."""


def first_not_finite(metrics: Mapping[str, Array], terms: Sequence[str]) -> Array:
  """[] int32: the place in `terms` of the first metric that is not finite; SOUND where all are."""
  is_sound = jnp.isfinite(jnp.stack([metrics[name] for name in terms]))
  return jnp.where(jnp.all(is_sound), SOUND, jnp.argmin(is_sound)).astype(jnp.int32)


def select(condition: Array, new: Any, old: Any) -> Any:
  """The tree `new` where the condition [] holds, else `old`; no NaN of one gets into the other."""
  return jax.tree_util.tree_map(lambda n, o: jnp.where(condition, n, o), new, old)


def finite_mean(values: Array) -> Array:
  """The mean of the finite ones; NaN where there is none. A skipped update must not hide the others'."""
  return jnp.mean(values, where=jnp.isfinite(values))
