"""The light network for few cores: convolutions into a latent vector, vectors from there on."""

from typing import Any

import haiku as hk
import jax

from moozi.core.config import NetworkConfig
from moozi.nn.blocks import is_large, normalize_latent
from moozi.nn.latent import flatten

Array = Any

# Large frames are reduced until they have no more cells on a side.
_SMALL_ENOUGH = 12


class ConvLatentRepresentation(hk.Module):
  """h: one 3×3 convolution, relu, flatten, dense, normalized.

  The convolution is unpadded where the frame has room for it: the border cells are still seen, at a
  third less work in the dense layer of a 10×10 frame.

  Large frames, of 64 cells and more on a side: an 8×8 convolution of stride 4, unpadded, then padded 4×4
  convolutions of stride 2 with twice the channels, down to 12 cells; each with relu. 84 cells become 20, 10.

  Of a stack of large frames the actions' planes, most of it and each of one value, skip the first
  convolution: a dense layer on these values adds what it would make of them (a plane's 64 weights are tied).

  Source for large frames: Mnih et al. 2013. Departures: the actions; the padding, so that no border is left
  out; sizes of the config (there 16 channels and 256 units).

  Args:
    config: channels and latent_size are read.
    num_frame_planes: L·C, how many of a stacked history's planes are frames; they come first.
  """

  def __init__(self, config: NetworkConfig, num_frame_planes: int, name: str = "representation"):
    super().__init__(name=name)
    self._config = config
    self._num_frame_planes = num_frame_planes

  def __call__(self, stacked_history: Array, is_training: bool) -> Array:
    """[B, H, W, Ch] to the hidden state [B, latent_size]."""
    del is_training  # nothing here keeps statistics
    channels = self._config.channels
    if is_large(stacked_history):
      frames = stacked_history[..., : self._num_frame_planes]
      actions = stacked_history[:, 0, 0, self._num_frame_planes :]
      x = hk.Conv2D(channels, 8, stride=4, padding="VALID", name="conv")(frames)
      by_action = hk.Linear(channels, with_bias=False, name="actions")(actions)
      x = jax.nn.relu(x + by_action[:, None, None, :])
      i = 1
      while max(x.shape[1:3]) > _SMALL_ENOUGH:
        x = jax.nn.relu(hk.Conv2D(2 * channels, 4, stride=2, padding="SAME", name=f"conv_{i}")(x))
        i += 1
    else:
      padding = "VALID" if min(stacked_history.shape[1:3]) >= 3 else "SAME"
      x = jax.nn.relu(hk.Conv2D(channels, 3, padding=padding, name="conv")(stacked_history))
    return normalize_latent(hk.Linear(self._config.latent_size, name="dense")(flatten(x)))
