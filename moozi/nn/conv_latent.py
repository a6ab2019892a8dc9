"""The representation of `conv_latent`: convolutions, and a dense layer to a vector."""

import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moozi.core.config import NetworkConfig
from moozi.nn.blocks import is_large, normalize_latent
from moozi.nn.latent import flatten

# `shrink` downsamples until no side has more cells than this.
SMALL_ENOUGH = 12
# Side and stride of the first convolution of large frames.
_KERNEL, _STRIDE = 8, 4


def large_conv(channels: int, sides: tuple[int, ...]) -> hk.Conv2D:
  """Returns an 8×8 convolution of stride 4, padded only where it would otherwise skip the last cells."""
  padding = [(0, -(side - _KERNEL) % _STRIDE) for side in sides]
  return hk.Conv2D(channels, _KERNEL, stride=_STRIDE, padding=padding, name="conv")


def shrink(x: Float[Array, "B H W C"], channels: int) -> Float[Array, "B h w D"]:
  """Applies padded 4×4 convolutions of stride 2 with 2 · `channels`, and relus, until no side is above 12."""
  i = 1
  while max(x.shape[1:3]) > SMALL_ENOUGH:
    x = jax.nn.relu(hk.Conv2D(2 * channels, 4, stride=2, padding="SAME", name=f"conv_{i}")(x))
    i += 1
  return x


def _convolve(x: Float[Array, "B H W C"], w: Float[Array, "3 3 C D"]) -> Float[Array, "B h w D"]:
  """Returns an unpadded convolution of stride 1."""
  return jax.lax.conv_general_dilated(
    x, w, window_strides=(1, 1), padding="VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
  )


@jax.custom_vjp
def _with_fast_gradient(x: Float[Array, "B H W C"], w: Float[Array, "3 3 C D"]) -> Float[Array, "B h w D"]:
  """Returns `_convolve`. The gradient of w is three matrix products, which are faster on the CPU.

  XLA computes this gradient by a convolution with windows of h × w cells. With 16 output channels that takes
  longer than the products; with 32 channels, as in `resnet`, it does not.
  """
  return _convolve(x, w)


def _forward(x: Float[Array, "B H W C"], w: Float[Array, "3 3 C D"]) -> tuple[Array, tuple[Array, Array]]:
  return _convolve(x, w), (x, w)


def _backward(saved: tuple[Array, Array], g: Float[Array, "B h w D"]) -> tuple[Array, Array]:
  x, w = saved
  of_x = jax.vjp(lambda x: _convolve(x, w), x)[1](g)[0]
  channels, height, size = x.shape[-1], g.shape[1], g.shape[-1]
  # The gradient shifted by each column of the kernel. Concatenated: for a stack XLA has a slower loop.
  shifts = [jnp.pad(g, ((0, 0), (0, 0), (j, 2 - j), (0, 0))) for j in range(3)]
  shifted = jnp.concatenate(shifts, axis=-1).reshape(-1, 3 * size)
  rows = [x[:, i : i + height].reshape(-1, channels).T @ shifted for i in range(3)]
  return of_x, jnp.stack([row.reshape(channels, 3, size).swapaxes(0, 1) for row in rows])


_with_fast_gradient.defvjp(_forward, _backward)


class UnpaddedConv(hk.Module):
  """An unpadded 3×3 convolution over a stacked history, with the parameters of `hk.Conv2D`.

  A constant plane adds the same to every cell: its value times the sum of its weights. The action planes are
  therefore not convolved.

  Args:
    channels: number of output channels.
    num_frame_planes: number of the leading planes, which are not constant.
  """

  def __init__(self, channels: int, num_frame_planes: int, name: str = "conv"):
    super().__init__(name=name)
    self._channels, self._num_frame_planes = channels, num_frame_planes

  def __call__(self, stacked_history: Float[Array, "B H W Ch"]) -> Float[Array, "B h w D"]:
    planes, num_frames = stacked_history.shape[-1], self._num_frame_planes
    init = hk.initializers.TruncatedNormal((9 * planes) ** -0.5)
    w = hk.get_parameter("w", (3, 3, planes, self._channels), init=init)
    b = hk.get_parameter("b", (self._channels,), init=jnp.zeros)
    convolve = _with_fast_gradient if jax.default_backend() == "cpu" else _convolve
    x = convolve(stacked_history[..., :num_frames], w[:, :, :num_frames])
    by_action = stacked_history[:, 0, 0, num_frames:] @ w[:, :, num_frames:].sum((0, 1))
    return x + (by_action + b)[:, None, None, :]


class ConvLatentRepresentation(hk.Module):
  """h: a 3×3 convolution (strided ones for large frames), relu, flatten, dense, `normalize_latent`.

  If the frame is at least 3×3, the convolution is unpadded. It still covers the border cells, and for a 10×10
  frame the dense layer reads 64 cells instead of 100.

  Large frames (40 cells or more on both sides) pass `large_conv`, a relu and `shrink`. For example, a side of
  84 cells becomes 20, and then 10.

  The action planes of a stacked history are constant, so they skip the first convolution if the frame is
  at least 3×3. For large frames, a dense layer on their values adds what a convolution with 64 equal weights
  per plane would add. For small ones, `UnpaddedConv` gives the same result as a convolution over all planes.

  Source for large frames: Mnih et al. 2013. Departures: the action planes; padding, which keeps the border;
  configurable sizes (Mnih et al. have 16 channels and 256 units).

  Args:
    config: its `channels` and `latent_size` are used.
    num_frame_planes: L·C, the number of frame planes in a stacked history; they come first.
  """

  def __init__(self, config: NetworkConfig, num_frame_planes: int, name: str = "representation"):
    super().__init__(name=name)
    self._config = config
    self._num_frame_planes = num_frame_planes

  def __call__(self, stacked_history: Float[Array, "B H W Ch"], is_training: bool) -> Float[Array, "B D"]:
    del is_training  # no layer keeps statistics
    channels = self._config.channels
    if is_large(stacked_history):
      frames = stacked_history[..., : self._num_frame_planes]
      actions = stacked_history[:, 0, 0, self._num_frame_planes :]
      x = large_conv(channels, frames.shape[1:3])(frames)
      by_action = hk.Linear(channels, with_bias=False, name="actions")(actions)
      x = shrink(jax.nn.relu(x + by_action[:, None, None, :]), channels)
    else:
      fits = min(stacked_history.shape[1:3]) >= 3
      conv = UnpaddedConv(channels, self._num_frame_planes) if fits else hk.Conv2D(channels, 3, name="conv")
      x = jax.nn.relu(conv(stacked_history))
    return normalize_latent(hk.Linear(self._config.latent_size, name="dense")(flatten(x)))
