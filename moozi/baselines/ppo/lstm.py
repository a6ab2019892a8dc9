"""The LSTM between PPO's layers and its heads, and minibatches of whole environments to train it.

Source: Huang et al. 2022, its five details of LSTMs: (1) weights are orthogonal of scale 1, and biases are 0;
(2) the first state is zeros; (3) the state after an episode's end is zeros; (4) a minibatch has whole
environments, each with its sequence of frames; (5) in an update, a sequence starts from the state before the
segment's first frame, and its state is reset at the frames where it was reset in acting. Departures:
  - After a lost life the state stays, as the stack of frames does; the source resets it.
  - The cell has one bias for each gate; PyTorch's has two, which are added.
  - With separate networks for policy and value, each has an LSTM; the source's network is shared.
"""

from collections.abc import Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int32, UInt32

from moozi.core.config.ppo import PPOConfig
from moozi.core.pytree import record
from moozi.core.types import AnyArray

LSTM_STATE, IS_FIRST = "lstm_state", "is_first"
"""Extras of decisions, which updates read: the state before the frame, and whether it is a game's first."""


@record
class Memory:
  """What an LSTM needs besides T·B frames. The sample of step t in lane b has the index t·B + b.

  Attributes:
    state: the output and the cell, of size S, of each LSTM before the first frame of each of the B sequences.
      K, the number of LSTMs, is 2 with separate networks, else 1.
    is_first: whether each frame is the first of a game; the state before it is then replaced by zeros.
  """

  state: Float32[AnyArray, "B K 2 S"]
  is_first: Bool[AnyArray, "T*B"]

  def of_environments(self, indices: Int32[AnyArray, "M"]) -> "Memory":
    """Returns the memory of the minibatch with these samples; see `sequence_indices`."""
    num_envs = len(indices) * len(self.state) // len(self.is_first)
    return Memory(state=self.state[indices[:num_envs]], is_first=self.is_first[indices])


class Lstm(hk.Module):
  """An LSTM over sequences.

    c' = σ(f)·c + σ(i)·tanh(g), h' = σ(o)·tanh(c'), with (i, f, g, o) = W·x + U·h + b.

  Source: Hochreiter & Schmidhuber 1997 with forget gates (Gers et al. 2000), as in PyTorch. Haiku's LSTM
    adds 1 to f; here `forget_bias` is added to the initial bias of f.
  """

  def __init__(self, size: int, w_init: Any, b_init: Any, forget_bias: float, name: str) -> None:
    super().__init__(name)
    self._size, self._w_init, self._b_init, self._forget_bias = size, w_init, b_init, forget_bias

  def __call__(
    self, x: Float[Array, "T B D"], state: Float[Array, "B 2 S"], is_first: Bool[Array, "T B"]
  ) -> tuple[Float[Array, "T B S"], Float[Array, "B 2 S"]]:
    """Returns the outputs, and the state after the last step."""
    gates = hk.Linear(4 * self._size, w_init=self._w_init, b_init=self._biases, name="input")(x)
    weights = hk.get_parameter("w", (self._size, 4 * self._size), init=self._w_init)

    def step(state: Float[Array, "B 2 S"], row: Any) -> tuple[Float[Array, "B 2 S"], Float[Array, "B S"]]:
      gates, is_first = row
      state = jnp.where(is_first[:, None, None], 0.0, state)
      hidden, cell = state[:, 0], state[:, 1]
      i, f, g, o = jnp.split(gates + hidden @ weights, 4, axis=-1)
      cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
      hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
      return jnp.stack([hidden, cell], axis=1), hidden

    state, out = jax.lax.scan(step, state, (gates, is_first))
    return out, state

  def _biases(self, shape: Sequence[int], dtype: Any) -> Float[Array, "4*S"]:
    forget_gate = slice(self._size, 2 * self._size)
    return self._b_init(shape, dtype).at[forget_gate].add(self._forget_bias)


def sequence_indices(rng_key: UInt32[Array, "2"], config: PPOConfig) -> Int32[Array, "U M"]:
  """Assigns environments to minibatches; each epoch shuffles all environments and splits them.

  Returns: for each of the U updates the indices t·B + b of the samples of its environments b, ordered by t.
  """
  keys = jax.random.split(rng_key, config.num_epochs)
  orders = jax.vmap(lambda key: jax.random.permutation(key, config.num_envs))(keys)
  envs = orders.reshape(config.round_updates, 1, -1)
  rows = config.num_envs * jnp.arange(config.segment_length)[:, None] + envs
  return rows.reshape(config.round_updates, -1).astype(jnp.int32)
