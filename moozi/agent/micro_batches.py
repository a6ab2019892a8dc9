"""Computes a network's outputs for a batch in micro-batches, so that larger batches fit in memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from moozi.core.errors import UserError
from moozi.nn.blocks import FRAME_NORM, TRANSITION_NORM
from moozi.nn.horizon import DISCOUNT
from moozi.nn.model import Model, NetState, Params, with_functions

# What is linear in the batch: the averages of a batch are the mean over its micro-batches. γ is constant.
_LINEAR_STATES = (FRAME_NORM, TRANSITION_NORM, DISCOUNT)


def in_micro_batches(function: Callable[..., PyTree], num: int, *batch: PyTree) -> PyTree:
  """Returns the outputs of `function(*batch)` for `num` micro-batches [num, B / num, …], made in turn.

  Micro-batch i has the samples i, i + num, i + 2 · num, …, so that on a mesh, each device has an equal share
  of every micro-batch.

  For the gradient, the intermediate values of one micro-batch at a time are computed again. Only inputs and
  outputs are kept for the whole batch.

  Args:
    batch: trees of arrays with the leading axis B.
  """
  parts = jax.tree_util.tree_map(
    lambda x: jnp.swapaxes(jnp.reshape(x, (len(x) // num, num, *x.shape[1:])), 0, 1), batch
  )
  part = jax.checkpoint(function)
  # Also on the CPU, where the gradient of a convolution is slow in a scan: unrolled, XLA computes several
  # micro-batches at once, which saves no memory.
  return jax.lax.map(lambda rows: part(*rows), parts)


def whole(parts: PyTree) -> PyTree:
  """Returns the outputs [B, …] of a batch from those of its micro-batches [num, B / num, …]."""
  return jax.tree_util.tree_map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), parts)


def with_micro_batches(model: Model, num: int) -> Model:
  """Returns a model for training whose functions compute each batch in `num` micro-batches.

  The functions raise UserError if the network has a state that depends on the whole batch, as batch norm has.
  """

  def divided(function: Callable[..., tuple[Any, NetState]]) -> Callable[..., tuple[Any, NetState]]:
    def run(params: Params, net_state: NetState, *arguments: Any) -> tuple[Any, NetState]:
      *batch, is_training = arguments
      _check_state(net_state, num)
      parts, states = in_micro_batches(
        lambda *rows: function(params, net_state, *rows, is_training), num, *batch
      )
      means = jax.tree_util.tree_map(lambda x: jnp.mean(x, axis=0), states)
      # Not the mean of equal values, which may be rounded.
      return whole(parts), {**means, DISCOUNT: net_state[DISCOUNT]} if DISCOUNT in net_state else means

    return run

  return with_functions(model, divided)


def _check_state(net_state: NetState, num: int) -> None:
  wrong = [name for name in net_state if name not in _LINEAR_STATES]
  if wrong:
    raise UserError(
      f"learner.accumulate={num}: must be 1 with this network, whose module {min(wrong)} has a state that an "
      "update computes from the whole batch"
    )
