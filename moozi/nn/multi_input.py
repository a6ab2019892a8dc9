"""The representation of observations of several arrays, with images: convolutions beside dense layers."""

import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moozi.core.config import NetworkConfig
from moozi.core.spec import EnvSpec
from moozi.nn.blocks import Norm, is_large
from moozi.nn.conv_latent import large_conv, shrink
from moozi.nn.latent import MlpRepresentation, flatten
from moozi.ops.frame_parts import stack_parts


class MultiInputRepresentation(hk.Module):
  """h: `ImageEncoder` of each image, one dense layer on all other numbers; then as `MlpRepresentation`.

  The dense layer has `latent_size` units, and the norm and a relu follow it. It also reads the actions of the
  history.

  Args:
    config: its `channels`, `latent_size` and norm are used.
    spec: with `frame_parts`.
    num_frame_planes: L·D, the number of frame planes in a stacked history; they come first.
  """

  def __init__(
    self, config: NetworkConfig, spec: EnvSpec, num_frame_planes: int, name: str = "representation"
  ):
    super().__init__(name=name)
    self._config, self._parts = config, spec.frame_parts
    self._frame_size, self._num_frame_planes = spec.frame_shape[2], num_frame_planes

  def __call__(self, stacked_history: Float[Array, "B 1 1 Ch"], is_training: bool) -> Float[Array, "B D"]:
    config, batch = self._config, stacked_history.shape[0]
    planes, actions = jnp.split(stacked_history[:, 0, 0], [self._num_frame_planes], axis=-1)
    length = self._num_frame_planes // self._frame_size
    images, numbers = stack_parts(planes.reshape(batch, length, self._frame_size), self._parts)
    x = hk.Linear(config.latent_size, name="numbers")(jnp.concatenate([numbers, actions], axis=-1))
    features = [jax.nn.relu(Norm(config, name="norm")(x, is_training))]
    for i, image in enumerate(images):
      features.append(flatten(ImageEncoder(config.channels, name=f"image_{i}")(image)))
    return MlpRepresentation(config, name="mlp")(jnp.concatenate(features, axis=-1), is_training)


class ImageEncoder(hk.Module):
  """A 3×3 convolution (for sides of 40 cells or more, `large_conv`) and a relu; then `shrink`.

  The 3×3 convolution is unpadded if it fits.
  """

  def __init__(self, channels: int, name: str):
    super().__init__(name=name)
    self._channels = channels

  def __call__(self, images: Float[Array, "B H W C"]) -> Float[Array, "B h w D"]:
    sides = images.shape[1:3]
    if is_large(images):
      conv = large_conv(self._channels, sides)
    else:
      conv = hk.Conv2D(self._channels, 3, padding="VALID" if min(sides) >= 3 else "SAME", name="conv")
    return shrink(jax.nn.relu(conv(images)), self._channels)
