"""The one interface that all networks are behind."""

import dataclasses
from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from moozi.core.config import NetworkConfig
from moozi.core.pytree import record
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.nn.conv_latent import ConvLatentRepresentation
from moozi.nn.latent import LatentDynamics, LatentPrediction, LatentProjection
from moozi.nn.mlp import MlpRepresentation
from moozi.nn.resnet import ResnetDynamics, ResnetPrediction, ResnetProjection, ResnetRepresentation
from moozi.ops.scalar_transform import ScalarTransform

Array = Any
Params = Any
NetState = Any


@record
class ModelOutput:
  """What both inferences return.

  Attributes:
    hidden_state: [B, …] float32, the network's own shape.
    value_logits: [B, S] float32; a scalar only through `Model.transform`.
    reward_logits: [B, S] float32, of the reward on entering this state; of reward 0 at the root.
    policy_logits: [B, A] float32.
  """

  hidden_state: Array
  value_logits: Array
  reward_logits: Array
  policy_logits: Array


@dataclasses.dataclass(frozen=True)
class Model:
  """A network as pure functions of its parameters and state (the averages of batch norm; else empty).

  With `is_training` False the state comes back as it was given. The static argument `is_training` is a
  Python bool.

  Attributes:
    init: (rng_key, stacked_history [B, H, W, Ch]) → (params, net_state).
    root_inference: (params, net_state, stacked_history, is_training) → (ModelOutput, net_state).
    recurrent_inference: (params, net_state, hidden_state, action [B] int32, is_training) → (ModelOutput,
      net_state).
    project: (params, net_state, hidden_state, is_training) → (projected, net_state); projected is
      shaped like the hidden state.
    represent: (params, net_state, stacked_history, is_training) → (hidden_state, net_state).
    num_actions: A, with the dummy.
    transform: Φ and its inverse.
  """

  init: Callable[..., tuple[Params, NetState]]
  root_inference: Callable[..., tuple[ModelOutput, NetState]]
  recurrent_inference: Callable[..., tuple[ModelOutput, NetState]]
  project: Callable[..., tuple[Array, NetState]]
  represent: Callable[..., tuple[Array, NetState]]
  num_actions: int
  transform: ScalarTransform


def make_model(
  config: NetworkConfig, spec: EnvSpec, history_length: int, transform: ScalarTransform
) -> Model:
  """The network that `config.kind` names, for the environment of `spec`.

  Args:
    config: kind, norm and sizes. `mlp` and `conv_latent` read latent_size, head_size, num_dynamics_blocks (at
      least one is made) and num_prediction_blocks; `resnet` reads all but latent_size.
    spec: the environment's; gives the frame's shape and A.
    history_length: L; the stacked history has L·(C + A) channels.
    transform: gives S.

  Raises: ValueError: stacked histories of another shape, at the first call.
  """
  input_shape = (*spec.frame_shape[:2], history_length * (spec.frame_shape[2] + spec.num_actions))
  num_frame_planes = history_length * spec.frame_shape[2]
  transformed = hk.multi_transform_with_state(
    lambda: _build(config, spec.num_actions, transform, num_frame_planes)
  )
  root_fn, trans_fn, project_fn, represent_fn = transformed.apply

  def init(rng_key: Array, stacked_history: Array) -> tuple[Params, NetState]:
    _check_shape(stacked_history, input_shape)
    params, net_state = transformed.init(rng_key, stacked_history)
    return params, net_state

  def root_inference(
    params: Params, net_state: NetState, stacked_history: Array, is_training: bool
  ) -> tuple[ModelOutput, NetState]:
    _check_shape(stacked_history, input_shape)
    return root_fn(params, net_state, None, stacked_history, is_training)

  def recurrent_inference(
    params: Params, net_state: NetState, hidden_state: Array, action: Array, is_training: bool
  ) -> tuple[ModelOutput, NetState]:
    return trans_fn(params, net_state, None, hidden_state, action, is_training)

  def project(
    params: Params, net_state: NetState, hidden_state: Array, is_training: bool
  ) -> tuple[Array, NetState]:
    return project_fn(params, net_state, None, hidden_state, is_training)

  def represent(
    params: Params, net_state: NetState, stacked_history: Array, is_training: bool
  ) -> tuple[Array, NetState]:
    _check_shape(stacked_history, input_shape)
    return represent_fn(params, net_state, None, stacked_history, is_training)

  return Model(
    init=init,
    root_inference=root_inference,
    recurrent_inference=recurrent_inference,
    project=project,
    represent=represent,
    num_actions=spec.num_actions,
    transform=transform,
  )


def _check_shape(stacked_history: Array, input_shape: tuple[int, ...]) -> None:
  if stacked_history.shape[1:] != input_shape:
    raise ValueError(
      f"stacked_history: shape {stacked_history.shape}, must be [B, {', '.join(map(str, input_shape))}]"
    )


def _parts(
  config: NetworkConfig, num_actions: int, support_size: int, num_frame_planes: int
) -> tuple[Any, Any, Any, Any]:
  """Representation, prediction, dynamics and projection modules of the kind."""
  if config.kind == "resnet":
    return (
      ResnetRepresentation(config),
      ResnetPrediction(config, num_actions, support_size),
      ResnetDynamics(config, num_actions, support_size),
      ResnetProjection(config),
    )
  is_mlp = config.kind == "mlp"
  return (
    MlpRepresentation(config) if is_mlp else ConvLatentRepresentation(config, num_frame_planes),
    LatentPrediction(config, num_actions, support_size),
    LatentDynamics(config, num_actions, support_size),
    LatentProjection(config),
  )


def _build(
  config: NetworkConfig, num_actions: int, transform: ScalarTransform, num_frame_planes: int
) -> tuple[Any, tuple[Any, ...]]:
  """Haiku's template: an init that touches every parameter, and the four functions."""
  represent, predict, transit, project = _parts(config, num_actions, transform.size, num_frame_planes)

  def root(stacked_history: Array, is_training: bool) -> ModelOutput:
    x = represent(stacked_history, is_training)
    value, policy = predict(x, is_training)
    reward = jnp.broadcast_to(jnp.asarray(transform.zero_logits), value.shape)
    return ModelOutput(hidden_state=x, value_logits=value, reward_logits=reward, policy_logits=policy)

  def trans(hidden_state: Array, action: Array, is_training: bool) -> ModelOutput:
    x, reward = transit(hidden_state, action, is_training)
    value, policy = predict(x, is_training)
    return ModelOutput(hidden_state=x, value_logits=value, reward_logits=reward, policy_logits=policy)

  def init(stacked_history: Array) -> None:
    x = represent(stacked_history, True)
    predict(x, True)
    x, _ = transit(x, jnp.full(x.shape[0], DUMMY_ACTION, jnp.int32), True)
    project(x, True)

  return init, (root, trans, project, represent)


def count_params(params: Params) -> int:
  """The number of scalars in `params`."""
  return sum(int(leaf.size) for leaf in jax.tree_util.tree_leaves(params))
