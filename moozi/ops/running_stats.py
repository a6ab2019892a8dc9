"""The running mean and variance of samples, and normalization by them. Runs on JAX arrays."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32

from moozi.core.pytree import record, register_records
from moozi.core.types import AnyArray

EPSILON = 1e-8
"""Added to a variance before its square root, as in `VecNormalize` of `openai/baselines`."""

CLIP = 10.0
"""The bound of normalized observations in `VecNormalize`."""


@record
class RunningStats:
  """The mean and the variance of all samples so far, entry by entry.

  Attributes:
    mean: 0 before the first sample.
    variance: the mean squared deviation (divided by n); 1 before the first sample.
    count: number of samples. In float32 it stops rising at about 2^24 times the size of a batch.
  """

  mean: Float32[AnyArray, "*entries"]
  variance: Float32[AnyArray, "*entries"]
  count: Float32[AnyArray, ""]


def initial_stats(shape: tuple[int, ...] = ()) -> RunningStats:
  """Returns the statistics of no samples of a shape; `standardized` then only clips."""
  register_records()
  return RunningStats(mean=jnp.zeros(shape), variance=jnp.ones(shape), count=jnp.zeros(()))


def updated(stats: RunningStats, x: Float[AnyArray, "N *entries"], mask: Bool[AnyArray, "N"]) -> RunningStats:
  """Returns the statistics of the samples so far and of those of `x` where the mask is true.

  An entry whose statistics would not be finite keeps its old ones.

  Source: Chan et al. 1979, the merge of two sets, as in `RunningMeanStd` of `openai/baselines`. Departures:
    the first batch replaces the initial mean and variance, which have the weight 1e-4 there; float32.
  """
  rows = jnp.reshape(mask, mask.shape + (1,) * (x.ndim - 1))
  num = jnp.sum(mask).astype(jnp.float32)
  mean = jnp.sum(jnp.where(rows, x, 0.0), axis=0) / jnp.maximum(num, 1.0)
  variance = jnp.sum(jnp.where(rows, jnp.square(x - mean), 0.0), axis=0) / jnp.maximum(num, 1.0)
  count = stats.count + num
  share, delta = num / jnp.maximum(count, 1.0), mean - stats.mean
  new_mean = stats.mean + share * delta
  new_variance = (1.0 - share) * (stats.variance + share * jnp.square(delta)) + share * variance
  is_finite = jnp.isfinite(new_mean) & jnp.isfinite(new_variance)
  return RunningStats(
    mean=jnp.where(is_finite, new_mean, stats.mean),
    variance=jnp.where(is_finite, new_variance, stats.variance),
    count=count,
  )


def deviation(stats: RunningStats) -> Float[Array, "*entries"]:
  """Returns the standard deviation; at least √EPSILON."""
  return jnp.sqrt(stats.variance + EPSILON)


def standardized(x: Float[AnyArray, "..."], stats: RunningStats, clip: float) -> Float[Array, "..."]:
  """Returns (x - mean) / deviation of x […, *entries], entry by entry, clipped to ±clip."""
  return jnp.clip((x - stats.mean) / deviation(stats), -clip, clip)
