"""Chance nodes on a hidden vector: the additional parts of `mlp` and `conv_latent`.

Source: Antonoglou et al. 2022, Stochastic MuZero. Departures: the encoder also reads the frame before
the transition, because the outcome of an action shows in the change.
"""

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from moozi.core.config import NetworkConfig
from moozi.nn.blocks import Heads, ResidualDense, normalize_latent
from moozi.nn.conv_latent import ConvLatentRepresentation
from moozi.nn.latent import MlpRepresentation


class LatentAfterstate(hk.Module):
  """φ and ψ: residual blocks (the first also reads the one-hot action), `normalize_latent` and two heads.

  Returns (the afterstate, the logits of its value, the logits of the outcome's code).
  """

  def __init__(
    self, config: NetworkConfig, num_actions: int, support_size: int, num_codes: int, name: str = "afterstate"
  ):
    super().__init__(name=name)
    self._config, self._num_actions = config, num_actions
    self._sizes = {"value": support_size, "chance": num_codes}

  def __call__(
    self, hidden_state: Float[Array, "B D"], action: Int[Array, "B"], is_training: bool
  ) -> tuple[Float[Array, "B D"], Float[Array, "B S"], Float[Array, "B N"]]:
    c, x = self._config, hidden_state
    one_hot = jax.nn.one_hot(action, self._num_actions, dtype=x.dtype)
    for i in range(max(1, c.num_dynamics_blocks)):
      x = ResidualDense(c, name=f"block_{i}")(x, is_training, one_hot if i == 0 else None)
    x = normalize_latent(x)
    heads = Heads(self._sizes, c, zero_init=True, name="heads")(x, is_training)
    return x, heads["value"], heads["chance"]


class OutcomeEncoder(hk.Module):
  """e: a separate representation network and a head; the index of the largest output is the code."""

  def __init__(
    self, config: NetworkConfig, num_codes: int, represent: Callable[..., Any], name: str = "encoder"
  ):
    super().__init__(name=name)
    self._config, self._num_codes, self._represent = config, num_codes, represent

  def __call__(self, stacked_history: Float[Array, "B H W Ch"], is_training: bool) -> Float[Array, "B N"]:
    x = self._represent(stacked_history, is_training)
    # The last layer does not start at 0: with equal logits, every transition would have the first code.
    heads = Heads({"code": self._num_codes}, self._config, zero_init=False, name="head")
    return heads(x, is_training)["code"]


def make_encoder(config: NetworkConfig, num_codes: int, num_frame_planes: int) -> OutcomeEncoder:
  """Makes the encoder of `config.kind`; `num_frame_planes` is (L + 1) · C, those of its input."""
  if config.kind == "mlp":
    represent: Any = MlpRepresentation(config, name="outcome_representation")
  else:
    represent = ConvLatentRepresentation(config, num_frame_planes, name="outcome_representation")
  return OutcomeEncoder(config, num_codes, represent)


def straight_through(encoded: Float[Array, "... N"]) -> Float[Array, "... N"]:
  """Returns the one-hot vector of the largest entry; its gradient passes to `encoded` unchanged.

  There is no softmax before it. Its gradient would vanish as soon as the encoder is certain, and outcomes
  that share a code at first would keep sharing it.

  Source: van den Oord et al. 2017. Departures: none.
  """
  one_hot = jax.nn.one_hot(jnp.argmax(encoded, axis=-1), encoded.shape[-1], dtype=encoded.dtype)
  return one_hot + encoded - jax.lax.stop_gradient(encoded)
