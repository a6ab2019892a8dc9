"""A discount that changes during a run: a model whose state carries it.

The state is published and saved with the parameters, so each search uses the discount of the newest targets
that its network has learned from: in acting, evaluation, reanalyze, and where a checkpoint plays.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float32

from moozi.core.config import Config
from moozi.nn.model import Model, NetState, Params, with_functions

DISCOUNT = "discount"
"""The name of γ, a float32 scalar, in `net_state`."""


def discount_of(net_state: NetState, constant: float) -> Float32[Array, ""] | float:
  """Returns the γ that a state carries, and `constant` if it carries none."""
  has_own = isinstance(net_state, Mapping) and DISCOUNT in net_state
  return net_state[DISCOUNT] if has_own else constant


def with_discount(model: Model, initial: float) -> Model:
  """Returns a model whose state also has γ, which its functions do not change."""

  def carrying(function: Callable[..., tuple[Any, NetState]]) -> Callable[..., tuple[Any, NetState]]:
    def run(params: Params, net_state: NetState, *arguments: Any) -> tuple[Any, NetState]:
      own = {name: x for name, x in net_state.items() if name != DISCOUNT}
      output, own = function(params, own, *arguments)
      return output, {**own, DISCOUNT: net_state[DISCOUNT]}

    return run

  def init(*arguments: Any) -> tuple[Params, NetState]:
    params, net_state = model.init(*arguments)
    return params, {**net_state, DISCOUNT: jnp.float32(initial)}

  return dataclasses.replace(with_functions(model, carrying), init=init)


def config_at(config: Config, net_state: NetState) -> Config:
  """Returns the configuration with the γ of a state as `targets.discount`, for displays."""
  discount = float(discount_of(net_state, config.targets.discount))
  targets = config.targets.model_copy(update={"discount": discount})
  return config.model_copy(update={"targets": targets})
