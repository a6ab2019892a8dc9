"""The `mlp` network. `conv_latent` and `multi_input` reuse its dynamics, prediction and projection."""

import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moozi.core.config import NetworkConfig
from moozi.nn.blocks import Heads, Norm, ResidualDense, normalize_latent


class MlpRepresentation(hk.Module):
  """h: flatten, dense, norm, relu, one residual block, `normalize_latent`."""

  def __init__(self, config: NetworkConfig, name: str = "representation"):
    super().__init__(name=name)
    self._config = config

  def __call__(self, inputs: Float[Array, "B *cells"], is_training: bool) -> Float[Array, "B D"]:
    c = self._config
    x = hk.Linear(c.latent_size, name="dense")(flatten(inputs))
    x = jax.nn.relu(Norm(c, name="norm")(x, is_training))
    return normalize_latent(ResidualDense(c, name="block")(x, is_training))


class LatentDynamics(hk.Module):
  """g: residual blocks (the first also reads the encoded action), `normalize_latent`, and a reward head.

  With chance nodes, it reads the hidden state of the afterstate, and the outcome's one-hot code instead of
  the action. Without `has_reward` there is no head, and the second output is None.
  """

  def __init__(
    self,
    config: NetworkConfig,
    support_size: int,
    name: str = "dynamics",
    has_reward: bool = True,
  ):
    super().__init__(name=name)
    self._config, self._support_size = config, support_size
    self._has_reward = has_reward

  def __call__(
    self,
    hidden_state: Float[Array, "B D"],
    action: Float[Array, "B P"],
    is_training: bool,
  ) -> tuple[Float[Array, "B D"], Float[Array, "B S"] | None]:
    c = self._config
    x = hidden_state
    for i in range(max(1, c.num_dynamics_blocks)):
      x = ResidualDense(c, name=f"block_{i}")(x, is_training, action if i == 0 else None)
    x = normalize_latent(x)
    if not self._has_reward:
      return x, None
    heads = Heads({"reward": self._support_size}, c, zero_init=True, name="head")
    return x, heads(x, is_training)["reward"]


class LatentPrediction(hk.Module):
  """f: residual blocks, then the value and policy heads."""

  def __init__(self, config: NetworkConfig, policy_size: int, support_size: int, name: str = "prediction"):
    super().__init__(name=name)
    self._config = config
    self._sizes = {"value": support_size, "policy": policy_size}

  def __call__(
    self, hidden_state: Float[Array, "B D"], is_training: bool
  ) -> tuple[Float[Array, "B S"], Float[Array, "B A"]]:
    c = self._config
    x = hidden_state
    for i in range(c.num_prediction_blocks):
      x = ResidualDense(c, name=f"block_{i}")(x, is_training)
    out = Heads(self._sizes, c, zero_init=True, name="heads")(x, is_training)
    return out["value"], out["policy"]


class LatentProjection(hk.Module):
  """The projection ϱ for the consistency loss: two dense layers."""

  def __init__(self, config: NetworkConfig, name: str = "projection"):
    super().__init__(name=name)
    self._config = config

  def __call__(self, hidden_state: Float[Array, "B D"], is_training: bool) -> Float[Array, "B D"]:
    c = self._config
    y = hk.Linear(hidden_state.shape[-1], name="dense_0")(hidden_state)
    y = jax.nn.relu(Norm(c, name="norm")(y, is_training))
    return hk.Linear(hidden_state.shape[-1], name="dense_1")(y)


def flatten(x: Float[Array, "B *cells"]) -> Float[Array, "B D"]:
  return jnp.reshape(x, (x.shape[0], -1))
