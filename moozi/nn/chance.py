"""Chance nodes on a hidden vector: the additional parts of `mlp`, `conv_latent` and `multi_input`.

Source: Antonoglou et al. 2022, Stochastic MuZero. Departures: the encoder reads L + 1 frames, one more
than the representation, because the outcome of an action shows in the change.
"""

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moozi.core.config import NetworkConfig
from moozi.core.config.chance import ChanceConfig
from moozi.nn.blocks import Heads, ResidualDense, normalize_latent


class LatentAfterstate(hk.Module):
  """φ and ψ: residual blocks (the first also reads the encoded action), `normalize_latent` and heads.

  Returns (the afterstate, logits by name: value, chance, and reward if the afterstate predicts it).
  """

  def __init__(
    self,
    config: NetworkConfig,
    support_size: int,
    chance: ChanceConfig,
    name: str = "afterstate",
  ):
    super().__init__(name=name)
    self._config = config
    self._sizes = {"value": support_size, "chance": chance.codes}
    if chance.reward_from == "afterstate":
      self._sizes["reward"] = support_size

  def __call__(
    self, hidden_state: Float[Array, "B D"], action: Float[Array, "B P"], is_training: bool
  ) -> tuple[Float[Array, "B D"], dict[str, Float[Array, "B _"]]]:
    c, x = self._config, hidden_state
    for i in range(max(1, c.num_dynamics_blocks)):
      x = ResidualDense(c, name=f"block_{i}")(x, is_training, action if i == 0 else None)
    x = normalize_latent(x)
    return x, Heads(self._sizes, c, zero_init=True, name="heads")(x, is_training)


class OutcomeEncoder(hk.Module):
  """e: a separate representation network, a head and `centred_unit`.

  The index of the largest output is the code.
  """

  def __init__(
    self, config: NetworkConfig, num_codes: int, represent: Callable[..., Any], name: str = "encoder"
  ):
    super().__init__(name=name)
    self._config, self._num_codes, self._represent = config, num_codes, represent

  def __call__(self, stacked_history: Float[Array, "B H W Ch"], is_training: bool) -> Float[Array, "B N"]:
    x = self._represent(stacked_history, is_training)
    # The last layer does not start at 0: with equal logits, every transition would have the first code.
    heads = Heads({"code": self._num_codes}, self._config, zero_init=False, name="head")
    return centred_unit(heads(x, is_training)["code"])


def make_encoder(
  config: NetworkConfig, chance: ChanceConfig, representation: Callable[[NetworkConfig, str], Any]
) -> OutcomeEncoder:
  """Makes the encoder; `representation` makes its network from a configuration and a module's name."""
  if chance.encoder_size is not None:
    config = config.model_copy(update={"latent_size": chance.encoder_size})
  return OutcomeEncoder(config, chance.codes, representation(config, "outcome_representation"))


def centred_unit(x: Float[Array, "... N"]) -> Float[Array, "... N"]:
  """Returns x shifted to mean 0 and scaled to norm 1.

  Outputs without a bound grew in training (docs/decisions/0018).
  """
  x = x - jnp.mean(x, axis=-1, keepdims=True)
  return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True) + 1e-6)


def straight_through(encoded: Float[Array, "... N"]) -> Float[Array, "... N"]:
  """Returns the one-hot vector of the largest entry; its gradient passes to `encoded` unchanged.

  There is no softmax before the maximum. Its gradient would vanish once the encoder is certain, and outcomes
  that share a code at first would keep sharing it.

  Source: van den Oord et al. 2017. Departures: none.
  """
  one_hot = jax.nn.one_hot(jnp.argmax(encoded, axis=-1), encoded.shape[-1], dtype=encoded.dtype)
  return one_hot + encoded - jax.lax.stop_gradient(encoded)
