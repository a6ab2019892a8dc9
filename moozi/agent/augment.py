"""Augmentation of the frames in a training batch: random shifts and a jitter of the intensity."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from moozi.nn.blocks import FRAME_NORM
from moozi.nn.model import NetState

_MAX_JITTER = 2.0


def augment_frames(
  planes: Float[Array, "B H W P"],
  net_state: NetState,
  max_shift: int,
  jitter: float,
  rng_key: UInt32[Array, "2"],
) -> Float[Array, "B H W P"]:
  """Shifts each sample's frame planes, and scales their intensity.

  All planes of a sample have the same shift, uniform over −max_shift … max_shift cells on each axis, and the
  same factor 1 + jitter · ε, where ε is a standard normal number clipped to −2 … 2. Cells that a shift
  uncovers repeat the border.

  With `network.center_frames`, only the difference from the running mean is shifted and scaled. If whole
  frames were shifted, the running mean would become the mean of shifted backgrounds, and centring would not
  remove the background.

  Source: Yarats et al. 2021 (DrQ: shift by 4 of 84 cells); Schwarzer et al. 2021 (SPR: jitter 0.05).
    Departures: the running mean is not augmented, so the factor does not change cells that are equal to it.
  """
  mean = net_state.get(FRAME_NORM, {}).get("mean", 0.0)
  shift_key, jitter_key = jax.random.split(rng_key)
  x = planes - mean
  if max_shift:
    batch, *sides, _ = planes.shape
    shifts = jax.random.randint(shift_key, (2, batch, 1), -max_shift, max_shift + 1)
    rows, columns = (jnp.clip(jnp.arange(n) + s, 0, n - 1) for n, s in zip(sides, shifts, strict=True))
    x = jnp.take_along_axis(x, rows[:, :, None, None], axis=1, mode="clip")
    x = jnp.take_along_axis(x, columns[:, None, :, None], axis=2, mode="clip")
  if jitter:
    noise = jax.random.normal(jitter_key, (len(planes), 1, 1, 1))
    x = x * (1.0 + jitter * jnp.clip(noise, -_MAX_JITTER, _MAX_JITTER))
  return x + mean
