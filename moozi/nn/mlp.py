"""The MLP network, for environments whose frames are vectors or small images."""

import haiku as hk
import jax
from jaxtyping import Array, Float

from moozi.core.config import NetworkConfig
from moozi.nn.blocks import Norm, ResidualDense, normalize_latent
from moozi.nn.latent import flatten


class MlpRepresentation(hk.Module):
  """h: flatten, dense, norm, relu, one residual block, normalized."""

  def __init__(self, config: NetworkConfig, name: str = "representation"):
    super().__init__(name=name)
    self._config = config

  def __call__(self, stacked_history: Float[Array, "B H W Ch"], is_training: bool) -> Float[Array, "B D"]:
    """The hidden state; D is `latent_size`."""
    c = self._config
    x = hk.Linear(c.latent_size, name="dense")(flatten(stacked_history))
    x = jax.nn.relu(Norm(c.norm, c.batch_norm_decay, name="norm")(x, is_training))
    return normalize_latent(ResidualDense(c.norm, c.batch_norm_decay, name="block")(x, is_training))
