"""The Haiku modules that networks are made of: norms, residual blocks and heads."""

import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moozi.core.config import NetworkConfig
from moozi.ops.running_stats import CLIP, initial_stats, standardized, updated

FRAME_NORM, TRANSITION_NORM = "frame_norm", "transition_norm"
"""The module names of the `FrameNorm` of histories and of that of transitions."""

_EPSILON = 1e-5
LARGE_FRAME = 40


def is_large(frames: Float[Array, "B H W C"]) -> bool:
  """Returns whether both sides have at least 40 cells, as in Atari."""
  return min(frames.shape[1:3]) >= LARGE_FRAME


class BatchNorm(hk.Module):
  """Batch normalization over all axes but the last; averages start at mean 0 and variance 1.

  Haiku's BatchNorm starts its averages at the statistics of the batch that initializes it. This batch has
  equal frames here, so in inference an untrained norm would divide by √ε.

  Source: Ioffe & Szegedy 2015. Departures: the averages have no bias correction.
  """

  def __init__(self, decay: float, name: str | None = None):
    super().__init__(name=name)
    self._decay = decay

  def __call__(self, x: Float[Array, "... C"], is_training: bool) -> Float[Array, "... C"]:
    """Normalizes by batch statistics in training, and by the averages in inference.

    Training updates the averages.
    """
    shape = (x.shape[-1],)
    scale = hk.get_parameter("scale", shape, init=jnp.ones)
    offset = hk.get_parameter("offset", shape, init=jnp.zeros)
    mean = hk.get_state("mean", shape, init=jnp.zeros)
    variance = hk.get_state("variance", shape, init=jnp.ones)
    if is_training:
      axes = tuple(range(x.ndim - 1))
      batch_mean, batch_variance = jnp.mean(x, axis=axes), jnp.var(x, axis=axes)
      hk.set_state("mean", self._decay * mean + (1 - self._decay) * jax.lax.stop_gradient(batch_mean))
      hk.set_state(
        "variance", self._decay * variance + (1 - self._decay) * jax.lax.stop_gradient(batch_variance)
      )
      mean, variance = batch_mean, batch_variance
    return (x - mean) * (jax.lax.rsqrt(variance + _EPSILON) * scale) + offset


class FrameNorm(hk.Module):
  """Subtracts each cell's and plane's running mean, and divides by one running standard deviation.

  It is for frames with a constant background, as in Atari, where moving objects change few cells. Training
  and acting both normalize by the averages, not by the batch. Each call in training moves the averages
  towards the batch, with the decay min(`decay`, (1 + t) / (10 + t)) at call t = 0, 1, ….

  Args:
    decay: largest decay of the averages per call.
  """

  def __init__(self, decay: float, name: str = FRAME_NORM):
    super().__init__(name=name)
    self._decay = decay

  def __call__(self, frames: Float[Array, "B H W P"], is_training: bool) -> Float[Array, "B H W P"]:
    """Returns the normalized planes, whose mean square is about 1 once the averages fit the frames."""
    mean = hk.get_state("mean", frames.shape[1:], init=jnp.zeros)
    variance = hk.get_state("variance", (), init=jnp.ones)
    count = hk.get_state("count", (), init=jnp.zeros)
    if is_training:
      keep = jnp.minimum(self._decay, (1.0 + count) / (10.0 + count))
      batch_mean = jnp.mean(frames, axis=0)
      hk.set_state("mean", keep * mean + (1.0 - keep) * batch_mean)
      hk.set_state("variance", keep * variance + (1.0 - keep) * jnp.mean(jnp.square(frames - mean)))
      hk.set_state("count", count + 1.0)
    return (frames - mean) * jax.lax.rsqrt(variance + _EPSILON)


class ObservationNorm(hk.Module):
  """Normalizes frames by the running mean and variance of each entry of a frame, and clips them to ±10.

  Training and acting both normalize by the running statistics. An update normalizes by those before it.

  Source: Huang et al. 2022, details 6 and 7 for robotics, which normalize PPO's observations. Departures:
    the statistics are those of the newest frames of the histories that the learner draws.

  Args:
    shape: the shape of one frame.
  """

  def __init__(self, shape: tuple[int, ...], name: str = "observation_norm"):
    super().__init__(name=name)
    self._shape = shape

  def __call__(self, planes: Float[Array, "B H W P"], is_observed: bool) -> Float[Array, "B H W P"]:
    """Normalizes the planes of a history's frames.

    Args:
      is_observed: whether the newest frames enter the statistics.
    """
    stats = hk.get_state("stats", self._shape, init=lambda shape, dtype: initial_stats(shape))
    channels = self._shape[-1]
    if is_observed:
      newest = planes[..., -channels:]
      hk.set_state("stats", updated(stats, newest, jnp.ones(len(planes), bool)))
    frames = planes.reshape(*planes.shape[:3], -1, channels)
    by_frame = standardized(jnp.moveaxis(frames, -2, 1), stats, CLIP)
    return jnp.moveaxis(by_frame, 1, -2).reshape(planes.shape)


class Norm(hk.Module):
  """The configured norm: "layer" (over all axes but the batch axis), "batch" or "none"."""

  def __init__(self, config: NetworkConfig, name: str):
    super().__init__(name=name)
    self._kind, self._decay = config.norm, config.batch_norm_decay

  def __call__(self, x: Float[Array, "B *cells C"], is_training: bool) -> Float[Array, "B *cells C"]:
    if self._kind == "layer":
      return hk.LayerNorm(axis=slice(1, None), param_axis=-1, create_scale=True, create_offset=True)(x)
    if self._kind == "batch":
      return BatchNorm(self._decay)(x, is_training)
    return x


def normalize_latent(x: Float[Array, "B D"]) -> Float[Array, "B D"]:
  """Scales each row to mean 0 and variance 1, so that hidden states stay bounded in any unroll."""
  centred = x - jnp.mean(x, axis=-1, keepdims=True)
  return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + _EPSILON)


class ResidualBlock(hk.Module):
  """Two 3×3 convolutions with norms, and a skip connection: relu(x + norm(conv(relu(norm(conv(x)))))).

  Source: thesis 5.1.2; He et al. 2016. Departures: the norm is configurable.
  """

  def __init__(self, channels: int, config: NetworkConfig, name: str):
    super().__init__(name=name)
    self._channels, self._config = channels, config

  def __call__(self, x: Float[Array, "B H W C"], is_training: bool) -> Float[Array, "B H W C"]:
    y = hk.Conv2D(self._channels, 3, padding="SAME", name="conv_0")(x)
    y = jax.nn.relu(Norm(self._config, name="norm_0")(y, is_training))
    y = hk.Conv2D(self._channels, 3, padding="SAME", name="conv_1")(y)
    y = Norm(self._config, name="norm_1")(y, is_training)
    return jax.nn.relu(x + y)


class ResidualDense(hk.Module):
  """x + W₂ relu(norm(W₁x)) on vectors."""

  def __init__(self, config: NetworkConfig, name: str):
    super().__init__(name=name)
    self._config = config

  def __call__(
    self, x: Float[Array, "B D"], is_training: bool, extra: Float[Array, "B E"] | None = None
  ) -> Float[Array, "B D"]:
    """Applies the block; `extra` is concatenated to x as input of W₁."""
    y = hk.Linear(x.shape[-1], name="dense_0")(x if extra is None else jnp.concatenate([x, extra], axis=-1))
    y = jax.nn.relu(Norm(self._config, name="norm")(y, is_training))
    return x + hk.Linear(x.shape[-1], name="dense_1")(y)


class Heads(hk.Module):
  """Heads on vectors, by name. Each head is: dense `head_size`, norm, relu, dense to the head's size.

  The first layers of all heads are one matrix product, followed by one norm. With `zero_init` the last layers
  start at 0: the initial policy is uniform, and value and reward are 0 if the support is symmetric.
  """

  def __init__(self, sizes: dict[str, int], config: NetworkConfig, zero_init: bool, name: str):
    super().__init__(name=name)
    self._sizes, self._config, self._zero_init = sizes, config, zero_init

  def __call__(self, x: Float[Array, "B D"], is_training: bool) -> dict[str, Float[Array, "B _"]]:
    y = hk.Linear(self._config.head_size * len(self._sizes), name="hidden")(x)
    y = jax.nn.relu(Norm(self._config, name="norm")(y, is_training))
    init = hk.initializers.Constant(0.0) if self._zero_init else None
    parts = jnp.split(y, len(self._sizes), axis=-1)
    return {
      head: hk.Linear(size, w_init=init, name=head)(part)
      for (head, size), part in zip(self._sizes.items(), parts, strict=True)
    }
