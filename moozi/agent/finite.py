"""Pure functions for compiled updates: skipping updates that are not finite, and reducing metrics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int32, PyTree

ALL_FINITE = -1
"""The result of `first_not_finite` if all metrics are finite."""


def first_not_finite(metrics: Mapping[str, Any], names: Sequence[str]) -> Int32[Array, ""]:
  """Returns the index in `names` of the first metric that is not finite; ALL_FINITE if there is none."""
  is_finite = jnp.isfinite(jnp.stack([metrics[name] for name in names]))
  return jnp.where(jnp.all(is_finite), ALL_FINITE, jnp.argmin(is_finite)).astype(jnp.int32)


def reduce_metrics(metrics: Mapping[str, Float[Array, "U"]]) -> dict[str, Float[Array, ""]]:
  """Returns the metrics of U updates as one number each.

  A metric is the mean of its finite values over the updates that were made; NaN if there are none. Two
  metrics are reduced differently: `faults/skipped_updates` is the sum, `importance_ratio/max` the maximum.
  """
  is_made = metrics["faults/skipped_updates"] == 0

  def mean(values: Float[Array, "U"]) -> Float[Array, ""]:
    return jnp.mean(values, where=is_made & jnp.isfinite(values))

  special: dict[str, Callable[..., Float[Array, ""]]] = {
    "faults/skipped_updates": jnp.sum,
    "importance_ratio/max": jnp.max,
  }
  return {name: special.get(name, mean)(values) for name, values in metrics.items()}


def guarded_step(
  optimizer: optax.GradientTransformation,
  state: Any,
  grads: PyTree,
  rate: Float[Array, ""],
  metrics: Mapping[str, Any],
  terms: Sequence[str],
) -> tuple[PyTree, PyTree, Int32[Array, ""], dict[str, Any]]:
  """Makes one optimizer step, or skips it if one of the metrics named in `terms` is not finite.

  The optimizer has no learning rate of its own: `rate` scales its output.

  Returns: the new params, the new opt_state, the result of `first_not_finite`, and `metrics` with five more:
    `update/grad_norm` (before clipping), `update/update_norm`, `update/param_norm`, `update/learning_rate`
    and `faults/skipped_updates`.
  """
  directions, opt_state = optimizer.update(grads, state.opt_state, state.params)
  updates = jax.tree_util.tree_map(lambda d: -rate * d, directions)
  update_norm = optax.tree.norm(updates)
  metrics = {**metrics, "update/grad_norm": optax.tree.norm(grads), "update/update_norm": update_norm}
  bad_term = first_not_finite(metrics, terms)
  is_good = bad_term == ALL_FINITE
  params = optax.tree.where(is_good, optax.apply_updates(state.params, updates), state.params)
  metrics |= {
    "update/update_norm": jnp.where(is_good, update_norm, 0.0),
    "update/param_norm": optax.tree.norm(params),
    "update/learning_rate": rate,
    "faults/skipped_updates": 1.0 - is_good.astype(jnp.float32),
  }
  return params, optax.tree.where(is_good, opt_state, state.opt_state), bad_term, metrics
