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

  Source for large frames: Mnih et al. 2013. Departures: the padding, so that no border is left out; sizes of
  the config (there 16 channels and 256 units).
  """

  def __init__(self, config: NetworkConfig, name: str = "representation"):
    super().__init__(name=name)
    self._config = config

  def __call__(self, stacked_history: Array, is_training: bool) -> Array:
    """[B, H, W, Ch] to the hidden state [B, latent_size]."""
    del is_training  # nothing here keeps statistics
    channels = self._config.channels
    if is_large(stacked_history):
      x = jax.nn.relu(hk.Conv2D(channels, 8, stride=4, padding="VALID", name="conv")(stacked_history))
      i = 1
      while max(x.shape[1:3]) > _SMALL_ENOUGH:
        x = jax.nn.relu(hk.Conv2D(2 * channels, 4, stride=2, padding="SAME", name=f"conv_{i}")(x))
        i += 1
    else:
      padding = "VALID" if min(stacked_history.shape[1:3]) >= 3 else "SAME"
      x = jax.nn.relu(hk.Conv2D(channels, 3, padding=padding, name="conv")(stacked_history))
    return normalize_latent(hk.Linear(self._config.latent_size, name="dense")(flatten(x)))
