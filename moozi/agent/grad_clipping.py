"""Clipping of gradients, with Optax: of each entry by its own running size, and of the whole by its norm."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int32, PyTree

from moozi.core.pytree import record
from moozi.core.types import AnyArray

DECAY = 0.999
"""β of the running mean of squares: Adam's β₂."""


@record
class SecondMomentState:
  """The state of `clip_by_second_moment`.

  Attributes:
    count: number of gradients so far.
    nu: exponentially decayed sum of their squares, entry by entry, times 1 - DECAY.
  """

  count: Int32[Array, ""]
  nu: PyTree


def clip_by_second_moment(factor: float) -> optax.GradientTransformation:
  """Clips each entry g of the gradient to ± factor · √v, where v is the running mean of g².

  v is that of the gradients before clipping, the current one included. It is corrected for its start at 0, as
  in Adam, so the first gradient is not clipped if the factor is at least 1. No entry is reduced to less than
  factor · √(1 - DECAY) of itself, which is 0.16 with a factor of 5.

  Args:
    factor: > 0.

  Source: Berner et al. 2019 (OpenAI Five), 3.2: factor 5. The paper states neither the decay of v nor whether
    v includes the current gradient.
  """

  # Infinity times a v of 0 would be NaN.
  factor = min(factor, float(jnp.finfo(jnp.float32).max))

  def init(params: PyTree) -> SecondMomentState:
    return SecondMomentState(count=jnp.zeros((), jnp.int32), nu=optax.tree.zeros_like(params))

  def update(
    grads: PyTree, state: SecondMomentState, params: PyTree | None = None
  ) -> tuple[PyTree, SecondMomentState]:
    del params
    count = state.count + 1
    nu = jax.tree_util.tree_map(lambda v, g: DECAY * v + (1.0 - DECAY) * jnp.square(g), state.nu, grads)
    correction = 1.0 - jnp.float32(DECAY) ** count

    def clipped(g: AnyArray, v: Array) -> Array:
      bound = factor * jnp.sqrt(v / correction)
      return jnp.clip(g, -bound, bound)

    return jax.tree_util.tree_map(clipped, grads, nu), SecondMomentState(count=count, nu=nu)

  return optax.GradientTransformation(init, update)


def clipping(max_grad_rms: float | None, max_grad_norm: float | None) -> optax.GradientTransformation:
  """Returns the clipping of each entry by `clip_by_second_moment`, then of the whole by its norm.

  None: no such clipping. The result is one part of a chain, so the places of later parts in the optimizer's
  state do not depend on the arguments.
  """
  whole = optax.identity() if max_grad_norm is None else optax.clip_by_global_norm(max_grad_norm)
  return whole if max_grad_rms is None else optax.chain(clip_by_second_moment(max_grad_rms), whole)
