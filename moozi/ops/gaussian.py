"""Policies over continuous actions: independent normal distributions, one for each of D dimensions.

Their parameters are the D means and then the D log standard deviations, in one row [2 D].

Source: Huang et al. 2022, robotics details 1, 3 and 5.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from moozi.core.factors import Intervals
from moozi.core.types import AnyArray

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


def gaussian_log_prob(
  params: Float[AnyArray, "*batch P"], action: Float[AnyArray, "*batch D"]
) -> Float[Array, "*batch"]:
  """Returns the log density of actions: the sum over the dimensions."""
  mean, log_std = jnp.split(params, 2, axis=-1)
  errors = (action - mean) * jnp.exp(-log_std)
  return -jnp.sum(0.5 * jnp.square(errors) + log_std + _LOG_SQRT_2_PI, axis=-1)


def gaussian_entropy(params: Float[AnyArray, "*batch P"]) -> Float[Array, "*batch"]:
  """Returns the differential entropy, in nats: the sum over the dimensions."""
  _, log_std = jnp.split(params, 2, axis=-1)
  return jnp.sum(log_std + _LOG_SQRT_2_PI + 0.5, axis=-1)


def draw_gaussian(
  params: Float[AnyArray, "B P"],
  rng_key: Array,
  temperature: Num[AnyArray, "*lanes"] | float,
  intervals: Intervals,
) -> tuple[Float[Array, "B D"], Float[Array, "B D"], Float[Array, "B P"]]:
  """Draws actions in proportion to density^(1/temperature); at temperature 0, takes the means.

  A row with a parameter that is not finite is replaced by zeros, which are standard normal distributions.

  Returns: the actions clipped to their bounds, the actions as drawn, and the parameters that were used.
  """
  params = jnp.where(jnp.isfinite(params).all(axis=-1, keepdims=True), params, 0.0)
  mean, log_std = jnp.split(params, 2, axis=-1)
  scale = jnp.reshape(jnp.sqrt(jnp.asarray(temperature, jnp.float32)), (-1, 1))
  noise = jnp.exp(log_std) * jax.random.normal(rng_key, mean.shape)  # may overflow
  drawn = jnp.where(scale > 0, mean + scale * noise, mean)
  return jnp.clip(drawn, intervals.low, intervals.high), drawn, params
