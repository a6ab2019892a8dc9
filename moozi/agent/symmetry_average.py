"""Averages priors and values over the symmetries of the game."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moozi.core.config import PlannerConfig, TargetsConfig
from moozi.core.pytree import replace
from moozi.core.spec import EnvSpec
from moozi.core.symmetry import tables_of
from moozi.nn.model import Model, ModelOutput


def averaged(model: Model, planner: PlannerConfig, targets: TargetsConfig, spec: EnvSpec) -> Model:
  """Returns the model that `planner` searches with.

  With `average_symmetries`, `root_inference` returns the means of the policy and value distributions over all
  symmetries, with the identity among them. The hidden state is that of the untransformed frames. Without the
  option, or in an environment without symmetries, the model does not change.

  Source: Silver et al. 2017 draw one symmetry for each evaluation. Departures: all symmetries; with a learned
    model at the root only, because hidden states have no symmetries.
  """
  if not (planner.average_symmetries and spec.symmetries):
    return model
  tables = tables_of(spec.symmetries, math.prod(spec.frame_shape), spec.num_actions)
  length, planes = targets.history_length, targets.history_length * spec.frame_shape[2]

  def turned(stacked: Float[Array, "B H W Ch"], number: int) -> Float[Array, "B H W Ch"]:
    """Returns stacked histories transformed by a symmetry; see `ops.history.stack_history`."""
    lead = stacked.shape[:3]
    frames = jnp.moveaxis(stacked[..., :planes].reshape(*lead, length, -1), 3, 1)
    flat = frames.reshape(*frames.shape[:2], -1)[..., tables.entries[number]]
    actions = stacked[..., planes:].reshape(*lead, length, -1)[..., tables.policies[number]]
    parts = jnp.moveaxis(flat.reshape(frames.shape), 1, 3), actions
    return jnp.concatenate([part.reshape(*lead, -1) for part in parts], axis=-1)

  def root_inference(
    params: Any, net_state: Any, stacked: Float[Array, "B H W Ch"], is_training: bool
  ) -> tuple[ModelOutput, Any]:
    number = len(tables.actions)
    views = jnp.concatenate([turned(stacked, i) for i in range(number)])
    output, net_state = model.root_inference(params, net_state, views, is_training)
    own = jax.tree_util.tree_map(lambda x: x[: len(stacked)], output)
    values, policies = (
      jax.nn.softmax(x).reshape(number, len(stacked), -1) for x in (output.value_logits, output.policy_logits)
    )
    policies = jnp.take_along_axis(policies, jnp.asarray(tables.actions)[:, None], axis=-1)
    value_logits, policy_logits = (jnp.log(jnp.maximum(jnp.mean(x, 0), 1e-30)) for x in (values, policies))
    return replace(own, value_logits=value_logits, policy_logits=policy_logits), net_state

  return dataclasses.replace(model, root_inference=root_inference)
