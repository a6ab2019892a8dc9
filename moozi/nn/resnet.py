"""The residual network of the thesis, 5.1.2; norm and sizes are configurable, and actions may have places.

Frames of 40 cells or more on both sides are downsampled as MuZero does for Atari.

Hidden states are images [B, H, W, channels]. The reward head lacks a flatten in the thesis (an erratum), and
"(1)" at the value head stands for |Z|. The thesis applies one block "to obtain the hidden state head", and a
second block to that head. Here a trunk of `num_dynamics_blocks` blocks precedes the reward head, and one more
block computes the hidden state from the trunk's output. Without a trunk, the reward head reads the next
hidden state. As in the thesis, hidden states are not scaled to a range; MuZero scales them to [0, 1].
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from moozi.core.config import NetworkConfig
from moozi.core.spec import EnvSpec
from moozi.nn.blocks import Heads, Norm, ResidualBlock, is_large
from moozi.nn.latent import flatten


def _tower(
  x: Float[Array, "B H W C"], num_blocks: int, config: NetworkConfig, is_training: bool, first: int = 0
) -> Float[Array, "B H W C"]:
  """Applies residual blocks named `block_{first}` and so on, which keep the number of channels."""
  for i in range(first, first + num_blocks):
    x = ResidualBlock(x.shape[-1], config, name=f"block_{i}")(x, is_training)
  return x


def _pool(x: Float[Array, "B H W C"]) -> Float[Array, "B h w C"]:
  return hk.avg_pool(x, window_shape=(3, 3, 1), strides=(2, 2, 1), padding="SAME")


class PointwiseConv(hk.Module):
  """A 1×1 convolution over groups of planes, with the parameters of `hk.Conv2D` over all of them.

  A group of constant planes is given by its values, [B, P], and adds the same to every cell. Each group is a
  matrix product.
  """

  def __init__(self, channels: int, name: str = "conv"):
    super().__init__(name=name)
    self._channels = channels

  def __call__(self, *groups: Float[Array, "B ..."]) -> Float[Array, "B H W C"]:
    """Sums the products of groups [B, H, W, P] or [B, P].

    A group with equal rows may have H = 1, and a group with equal columns W = 1.
    """
    sizes = [group.shape[-1] for group in groups]
    init = hk.initializers.TruncatedNormal(sum(sizes) ** -0.5)
    w = hk.get_parameter("w", (1, 1, sum(sizes), self._channels), init=init)[0, 0]
    x = hk.get_parameter("b", (self._channels,), init=jnp.zeros)
    for group, rows in zip(groups, jnp.split(w, np.cumsum(sizes)[:-1]), strict=True):
      product = group @ rows
      x = x + (product if group.ndim == 4 else product[:, None, None, :])
    return x


class ResnetRepresentation(hk.Module):
  """h: a 1×1 convolution, then `num_representation_blocks` residual blocks; large frames are downsampled.

  Large frames (40 cells or more on both sides) are halved four times: by a 3×3 convolution of stride 2 into
  half the channels, by another into all channels, and by two average pools of stride 2. Residual blocks
  follow each of the first three, in the ratio 2 : 3 : 3, rounded (MuZero has eight).

  Source: thesis 5.1.2; Schrittwieser et al. 2020, appendix F, for large frames. Departures from appendix F: a
  norm and relu after the convolutions; configurable sizes (MuZero has 256 channels).

  Args:
    num_frame_planes: L·C, the number of frame planes in a stacked history; constant planes follow them.
  """

  def __init__(self, config: NetworkConfig, num_frame_planes: int, name: str = "representation"):
    super().__init__(name=name)
    self._config, self._num_frame_planes = config, num_frame_planes

  def __call__(self, stacked_history: Float[Array, "B H W Ch"], is_training: bool) -> Float[Array, "B h w C"]:
    """Returns the hidden state. C is `channels`; h × w is H × W, for large frames ⌈H/16⌉ × ⌈W/16⌉."""
    c = self._config
    if not is_large(stacked_history):
      frames = stacked_history[..., : self._num_frame_planes]
      x = PointwiseConv(c.channels)(frames, stacked_history[:, 0, 0, self._num_frame_planes :])
      return _tower(x, c.num_representation_blocks, c, is_training)
    # Block indices at which the second and third stages start, and at which the third ends.
    first, second, last = (round(c.num_representation_blocks * share / 8) for share in (2, 5, 8))
    x = self._halve(stacked_history, max(1, c.channels // 2), 0, is_training)
    x = _tower(x, first, c, is_training)
    x = self._halve(x, c.channels, 1, is_training)
    x = _pool(_tower(x, second - first, c, is_training, first))
    return _pool(_tower(x, last - second, c, is_training, second))

  def _halve(
    self, x: Float[Array, "B H W Ch"], channels: int, index: int, is_training: bool
  ) -> Float[Array, "B h w C"]:
    norm = Norm(self._config, name=f"norm_{index}")
    x = hk.Conv2D(channels, 3, stride=2, padding="SAME", name=f"conv_{index}")(x)
    return jax.nn.relu(norm(x, is_training))


class ResnetPrediction(hk.Module):
  """f: residual blocks, flatten, then for value and policy each: dense, norm, relu, dense.

  With `conv_policy`, a 1×1 convolution of the blocks' output adds to the logit of each action that acts at a
  place (`EnvSpec.action_places`): its value at that cell, or its mean over that column. Without it, without
  such actions, or if the image is downsampled, all logits of the policy come from the `head_size` units of
  its head.

  Source: thesis 5.1.2; Wu 2019, Accelerating Self-Play Learning in Go, for the convolution. Departure from
  the latter: dense logits are added to those of the convolution; Wu's head has pooled features instead.
  """

  def __init__(self, config: NetworkConfig, spec: EnvSpec, support_size: int, name: str = "prediction"):
    super().__init__(name=name)
    self._config, self._spec = config, spec
    self._sizes = {"value": support_size, "policy": spec.policy_size}

  def __call__(
    self, hidden_state: Float[Array, "B H W C"], is_training: bool
  ) -> tuple[Float[Array, "B S"], Float[Array, "B A"]]:
    cells = _tower(hidden_state, self._config.num_prediction_blocks, self._config, is_training)
    x = flatten(cells)
    out = {head: _head(x, head, size, self._config, is_training) for head, size in self._sizes.items()}
    num_places = _num_places(self._spec, cells)
    if not (self._config.conv_policy and num_places):
      return out["value"], out["policy"]
    places = PointwiseConv(1, name="policy_places")(cells)
    if self._spec.action_places == "columns":
      places = jnp.mean(places, axis=1)
    after = self._spec.policy_size - 1 - num_places
    return out["value"], out["policy"] + jnp.pad(places.reshape(-1, num_places), ((0, 0), (1, after)))


class ResnetDynamics(hk.Module):
  """g: a 1×1 convolution of state and action planes, the trunk, and one more block for the next state.

  An action that acts at a place (`EnvSpec.action_places`) is a plane with 1 in its cell or column, as in
  MuZero for Go. Each of the other actions has a constant plane: 1 / (number of these planes) if it is taken,
  else 0.

  With `action_offsets`, and if actions act at cells, each cell also receives a learned vector for its offset
  from the cell of the action. Otherwise the blocks' convolutions carry the place of the action only to cells
  within their reach. One block reaches cells up to two away, whereas a move of Othello on 8×8 cells changes
  cells up to six away.

  Source: thesis 5.1.2; Shaw et al. 2018, Self-Attention with Relative Position Representations, for the
  offsets. Departures from the latter: the vectors are added to the cells, not to attention keys.
  """

  def __init__(self, config: NetworkConfig, spec: EnvSpec, support_size: int, name: str = "dynamics"):
    super().__init__(name=name)
    self._config, self._spec, self._support_size = config, spec, support_size

  def __call__(
    self, hidden_state: Float[Array, "B H W C"], action: Float[Array, "B P"], is_training: bool
  ) -> tuple[Float[Array, "B H W C"], Float[Array, "B S"]]:
    c = self._config
    num_places, width = _num_places(self._spec, hidden_state), hidden_state.shape[2]
    placed, others = action[:, 1 : num_places + 1], jnp.delete(action, slice(1, num_places + 1), axis=1)
    groups = [hidden_state, others / others.shape[1]]
    if num_places:
      groups.append(placed.reshape(-1, num_places // width, width, 1))
    x = PointwiseConv(c.channels)(*groups)
    if c.action_offsets and num_places and self._spec.action_places == "cells":
      x = x + _offset_vectors(placed, *x.shape[1:])
    x = _tower(x, c.num_dynamics_blocks, c, is_training)
    next_state = ResidualBlock(c.channels, c, name="state_block")(x, is_training)
    seen = x if c.num_dynamics_blocks else next_state
    return next_state, _head(flatten(seen), "reward", self._support_size, c, is_training)


def _offset_vectors(
  placed: Float[Array, "B P"], height: int, width: int, channels: int
) -> Float[Array, "B H W C"]:
  """Returns for each cell the vector of its offset from the action's cell; 0 for actions without a place."""
  init = hk.initializers.TruncatedNormal(channels**-0.5)
  vectors = hk.get_parameter("offsets", (2 * height - 1, 2 * width - 1, channels), init=init)
  rows, columns = (np.arange(n) - np.arange(n)[:, None] + n - 1 for n in (height, width))  # [from, to]
  by_place = vectors[rows[:, None, :, None], columns[None, :, None, :]]
  return (placed @ by_place.reshape(height * width, -1)).reshape(-1, height, width, channels)


class ResnetProjection(hk.Module):
  """The projection ϱ: one residual block."""

  def __init__(self, config: NetworkConfig, name: str = "projection"):
    super().__init__(name=name)
    self._config = config

  def __call__(self, hidden_state: Float[Array, "B H W C"], is_training: bool) -> Float[Array, "B H W C"]:
    return _tower(hidden_state, 1, self._config, is_training)


def _num_places(spec: EnvSpec, image: Float[Array, "B H W C"]) -> int:
  """Returns the number of actions with a place in the image; they follow action 0, which is the dummy.

  A downsampled image does not have the board's cells.
  """
  return spec.num_places if image.shape[1:3] == spec.frame_shape[:2] else 0


def _head(
  x: Float[Array, "B D"], name: str, size: int, config: NetworkConfig, is_training: bool
) -> Float[Array, "B {size}"]:
  heads = Heads({name: size}, config, zero_init=True, name=f"{name}_head")
  return heads(x, is_training)[name]
