"""A user's own network: its four parts, with the shapes and dtypes of their results checked when traced."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from moozi.core import plugins
from moozi.core.config import NetworkConfig
from moozi.core.errors import UserError, one_line
from moozi.core.spec import EnvSpec

_PARTS = ("representation", "prediction", "dynamics", "projection")


def make_parts(
  config: NetworkConfig, spec: EnvSpec, support_size: int, num_frame_planes: int
) -> tuple[Any, Any, Any, Any]:
  """Makes the four parts with the function `config.kind`. Call it inside a Haiku transform.

  Raises: UserError: the function fails, or does not return four functions. A part raises it when traced, if
    the part fails or does not return what `nn.model.Parts` says.
  """
  plugin = plugins.NETWORKS.get(config.kind)
  policy_size = spec.policy_size
  made = plugin(config, policy_size, support_size, num_frame_planes)
  with plugin.errors("its result cannot be read"):
    if not isinstance(made, tuple) or len(made) != len(_PARTS) or not all(map(callable, made)):
      raise UserError(
        f"{plugin.where}: returns {one_line(made, 80)}; must return a tuple of {len(_PARTS)} functions: "
        f"{', '.join(_PARTS)}"
      )

  def call(part: int, *args: Any) -> Any:
    with plugin.errors(f"the {_PARTS[part]} failed"):
      return made[part](*args)

  def reading(part: int) -> contextlib.AbstractContextManager[None]:
    return plugin.errors(f"the {_PARTS[part]}'s result cannot be read")

  def check(part: int, what: str, out: Any, batch: int, shape: tuple[int, ...] | None) -> Any:
    """Checks that `out` is a float array [batch, *shape], with any shape if None."""
    with reading(part):
      is_float = isinstance(out, jax.Array) and jnp.issubdtype(out.dtype, jnp.floating)
      if not is_float or out.ndim < 2 or out.shape[0] != batch or shape not in (None, out.shape[1:]):
        size = "…" if shape is None else ", ".join(map(str, shape))
        raise UserError(
          f"{plugin.where}: the {_PARTS[part]} returns {_describe(out)} as {what}; must be a float array "
          f"[{batch}, {size}]"
        )
    return out

  def pair(part: int, names: str, out: Any) -> tuple[Any, Any]:
    with reading(part):
      if not isinstance(out, tuple) or len(out) != 2:
        raise UserError(
          f"{plugin.where}: the {_PARTS[part]} returns {_describe(out)}; must be a tuple ({names})"
        )
    return out

  def represent(stacked_history: Float[Array, "B H W Ch"], is_training: bool) -> Float[Array, "B ..."]:
    state = call(0, stacked_history, is_training)
    return check(0, "the hidden state", state, stacked_history.shape[0], None)  # type: ignore[no-any-return]

  def predict(x: Float[Array, "B ..."], is_training: bool) -> tuple[Array, Array]:
    value, policy = pair(1, "value logits, policy logits", call(1, x, is_training))
    check(1, "the value logits", value, x.shape[0], (support_size,))
    check(1, "the policy logits", policy, x.shape[0], (policy_size,))
    return value, policy

  def dynamics(x: Float[Array, "B ..."], action: Int[Array, "B"], is_training: bool) -> tuple[Array, Array]:
    state, reward = pair(2, "hidden state, reward logits", call(2, x, action, is_training))
    check(2, "the hidden state", state, x.shape[0], x.shape[1:])
    check(2, "the reward logits", reward, x.shape[0], (support_size,))
    return state.astype(x.dtype), reward

  def project(x: Float[Array, "B ..."], is_training: bool) -> Float[Array, "B ..."]:
    return check(3, "the projection", call(3, x, is_training), x.shape[0], x.shape[1:])  # type: ignore[no-any-return]

  return represent, predict, dynamics, project


def _describe(out: Any) -> str:
  return f"{out.dtype}{list(out.shape)}" if isinstance(out, jax.Array) else one_line(type(out).__name__)
