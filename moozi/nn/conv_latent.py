"""The light network for few cores: one convolution into a latent vector, vectors from there on."""

from typing import Any

import haiku as hk
import jax

from moozi.core.config import NetworkConfig
from moozi.nn.blocks import normalize_latent
from moozi.nn.latent import flatten

Array = Any


class ConvLatentRepresentation(hk.Module):
  """h: one 3×3 convolution, relu, flatten, dense, normalized.

  The convolution is unpadded where the frame has room for it: the border cells are still seen, at a
  third less work in the dense layer of a 10×10 frame.
  """

  def __init__(self, config: NetworkConfig, name: str = "representation"):
    super().__init__(name=name)
    self._config = config

  def __call__(self, stacked_history: Array, is_training: bool) -> Array:
    """[B, H, W, Ch] to the hidden state [B, latent_size]."""
    del is_training  # nothing here keeps statistics
    padding = "VALID" if min(stacked_history.shape[1:3]) >= 3 else "SAME"
    x = jax.nn.relu(hk.Conv2D(self._config.channels, 3, padding=padding, name="conv")(stacked_history))
    return normalize_latent(hk.Linear(self._config.latent_size, name="dense")(flatten(x)))
