"""An agent's network as pure functions of named parameters."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int32, Shaped

from moozi.core.config import Config
from moozi.core.pytree import record, register_records
from moozi.core.spec import EnvSpec
from moozi.nn.model import ModelOutput
from moozi.ops.history import normalize_frame, stack_history
from moozi.run import build


@record
class NetworkOutput:
  """The network's output for B positions.

  Attributes:
    policy_logits: over the A actions of the agent; index 0 is the dummy action, and action i of the
      environment is at i + 1. Illegal actions are not masked.
    value: env units, for the player to move.
    reward: env units, for the player who moved; 0 at the root.
    hidden_state: of the network's own shape; the argument of `Network.recurrent`.
  """

  policy_logits: Float[Array, "B A"]
  value: Float[Array, "B"]
  reward: Float[Array, "B"]
  hidden_state: Float[Array, "B ..."]


@dataclasses.dataclass(frozen=True)
class Network:
  """A network of MuZero or AlphaZero as pure functions of its parameters, which can be compiled and traced.

  Attributes:
    parameters: float32 arrays by name, `params/MODULE/…/NAME`: the weights and biases of the layers. With
      batch norm or `network.center_frames`, also its averages, `net_state/MODULE/…/NAME`.
    root: (parameters, frames, actions) → NetworkOutput. `frames` [B, L, H, W, C] are the last L frames, the
      newest last, of the spec's dtype, and zeros before the episode's start. `actions` [B, L] int32 are the
      actions before each of these frames, in the agent's action space (0 is the dummy, which stands before
      the episode's start).
    recurrent: (parameters, hidden_state, action [B] int32 of the agent's action space) → NetworkOutput after
      the action. With chance nodes, after the most probable outcome. None if the network has no model
      (AlphaZero).
    history_length: L.
    spec: the environment's specification.
  """

  parameters: Mapping[str, Float[np.ndarray, "..."]]
  root: Callable[..., NetworkOutput]
  recurrent: Callable[..., NetworkOutput] | None
  history_length: int
  spec: EnvSpec


def make_network(config: Config, spec: EnvSpec, params: Any, net_state: Any) -> Network:
  """Returns the network of a run with `algorithm=muzero` or `alphazero`, with these parameters."""
  register_records()
  model, transform = build.build_model(config, spec), build.scalar_transform(config)
  tree = {"params": params, "net_state": net_state}
  leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
  names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]

  def variables(parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    out = jax.tree_util.tree_unflatten(structure, [parameters[name] for name in names])
    return out["params"], out["net_state"]

  def output(found: ModelOutput) -> NetworkOutput:
    return NetworkOutput(
      policy_logits=found.policy_logits,
      value=transform.to_scalar(found.value_logits),
      reward=transform.to_scalar(found.reward_logits),
      hidden_state=found.hidden_state,
    )

  def root(
    parameters: Mapping[str, Any], frames: Shaped[Array, "B L H W C"], actions: Int32[Array, "B L"]
  ) -> NetworkOutput:
    stacked = stack_history(normalize_frame(frames, spec.frame_dtype), actions, spec.num_actions)
    return output(model.root_inference(*variables(parameters), stacked, False)[0])

  def recurrent(
    parameters: Mapping[str, Any], hidden_state: Float[Array, "B ..."], action: Int32[Array, "B"]
  ) -> NetworkOutput:
    return output(model.recurrent_inference(*variables(parameters), hidden_state, action, False)[0])

  arrays = jax.device_get([leaf for _, leaf in leaves])
  return Network(
    parameters=dict(zip(names, map(np.asarray, arrays), strict=True)),
    root=root,
    recurrent=recurrent if config.has_model else None,
    history_length=config.targets.history_length,
    spec=spec,
  )
