"""The interface of all networks, and `make_model`, which builds them from a configuration."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from moozi.core.config import NetworkConfig
from moozi.core.config.chance import ChanceConfig
from moozi.core.pytree import record, register_records, replace
from moozi.core.spec import DUMMY_ACTION, EnvSpec, check_multi_input
from moozi.nn import custom
from moozi.nn.blocks import FRAME_NORM, TRANSITION_NORM, FrameNorm, ObservationNorm
from moozi.nn.chance import LatentAfterstate, make_encoder
from moozi.nn.conv_latent import ConvLatentRepresentation
from moozi.nn.latent import LatentDynamics, LatentPrediction, LatentProjection, MlpRepresentation
from moozi.nn.multi_input import MultiInputRepresentation
from moozi.nn.resnet import ResnetDynamics, ResnetPrediction, ResnetProjection, ResnetRepresentation
from moozi.ops.actions import Groups, encode_action
from moozi.ops.scalar_transform import ScalarTransform

Params: TypeAlias = PyTree
"""Haiku's parameters: float32 arrays by module and name."""

NetState: TypeAlias = PyTree
"""Haiku's state: the averages of batch norm and of `network.center_frames`, the statistics of
`network.normalize_observations`, and any state of a user's network. With a discount schedule it also has γ
(`nn.horizon`)."""


@record
class ModelOutput:
  """The result of root and recurrent inference.

  Attributes:
    hidden_state: in the network's own shape.
    value_logits: categories; `Model.transform` converts them to scalars.
    reward_logits: categories of the reward on entering this state; at the root, of reward 0.
    policy_logits: over the P entries of a policy.
  """

  hidden_state: Float[Array, "B ..."]
  value_logits: Float[Array, "B S"]
  reward_logits: Float[Array, "B S"]
  policy_logits: Float[Array, "B A"]


@record
class AfterstateOutput:
  """The state after an action, before chance decides its outcome.

  Attributes:
    hidden_state: has the shape of a state's hidden state.
    value_logits: categories of the action's Q-value for the player who moved; if the afterstate predicts the
      reward r, of (Q − r) / γ.
    chance_logits: logits of the outcome's codes.
    reward_logits: categories of the reward on entering the next state; None if the outcome predicts it.
  """

  hidden_state: Float[Array, "B ..."]
  value_logits: Float[Array, "B S"]
  chance_logits: Float[Array, "B N"]
  reward_logits: Float[Array, "B S"] | None = None

  def reward_and_q_value(
    self, transform: ScalarTransform, discount: Float[Array, ""] | float
  ) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
    """Returns the reward (0 if the outcome predicts it) and the Q-value, in env units; `discount` is γ."""
    value = transform.to_scalar(self.value_logits)
    if self.reward_logits is None:
      return jnp.zeros_like(value), value
    reward = transform.to_scalar(self.reward_logits)
    return reward, reward + discount * value


def with_reward(output: ModelOutput, after: AfterstateOutput) -> ModelOutput:
  """Returns the output of an outcome with the reward that the afterstate predicts, if it predicts one."""
  return output if after.reward_logits is None else replace(output, reward_logits=after.reward_logits)


@dataclasses.dataclass(frozen=True)
class ChanceModel:
  """A model's chance nodes: an action leads to an afterstate, and an outcome to the next state.

  Attributes:
    afterstate: (params, net_state, hidden_state, action [B] int32, is_training) → (AfterstateOutput,
      net_state).
    outcome: (params, net_state, afterstate's hidden_state, code [B, N] one-hot float, is_training) →
      (ModelOutput, net_state). If the afterstate predicts the reward, this output's reward is 0.
    encode: (params, net_state, transition [B, H, W, (L+1)·(C+P)], is_training) → (outputs [B, N],
      net_state). The index of the largest output is the code. A transition is the stacked history of length
      L + 1 that ends with the next frame.
    num_codes: N.
  """

  afterstate: Callable[..., tuple[AfterstateOutput, NetState]]
  outcome: Callable[..., tuple[ModelOutput, NetState]]
  encode: Callable[..., tuple[Array, NetState]]
  num_codes: int


@dataclasses.dataclass(frozen=True)
class Model:
  """A network as pure functions of its parameters and state.

  `is_training` is a static Python bool; if False, the state is returned unchanged. Constructing a Model
  registers records with JAX.

  Attributes:
    init: (rng_key, stacked_history [B, H, W, Ch]) → (params, net_state).
    root_inference: (params, net_state, stacked_history, is_training) → (ModelOutput, net_state).
    recurrent_inference: (params, net_state, hidden_state, action [B] int32, is_training) → (ModelOutput,
      net_state). With chance nodes, it takes the most probable outcome of the action.
    project: (params, net_state, hidden_state, is_training) → (projected, net_state), in the hidden state's
      shape.
    represent: (params, net_state, stacked_history, is_training) → (hidden_state, net_state).
    policy_groups: see `EnvSpec.policy_groups`.
    transform: Φ and its inverse.
    chance: the model's chance nodes; None if it is deterministic.
  """

  init: Callable[..., tuple[Params, NetState]]
  root_inference: Callable[..., tuple[ModelOutput, NetState]]
  recurrent_inference: Callable[..., tuple[ModelOutput, NetState]]
  project: Callable[..., tuple[Array, NetState]]
  represent: Callable[..., tuple[Array, NetState]]
  policy_groups: Groups
  transform: ScalarTransform
  chance: ChanceModel | None = None

  def __post_init__(self) -> None:
    register_records()


def with_functions(model: Model, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Model:
  """Returns a model with `change` applied to each of its functions but `init`, also to those of chance."""

  def changed(part: Any, *names: str) -> dict[str, Any]:
    return {name: change(getattr(part, name)) for name in names}

  chance = model.chance
  if chance is not None:
    chance = dataclasses.replace(chance, **changed(chance, "afterstate", "outcome", "encode"))
  names = "root_inference", "recurrent_inference", "project", "represent"
  return dataclasses.replace(model, **changed(model, *names), chance=chance)


def make_model(
  config: NetworkConfig,
  spec: EnvSpec,
  history_length: int,
  transform: ScalarTransform,
  chance: ChanceConfig = ChanceConfig(),  # noqa: B008 - frozen
  has_dynamics: bool = True,
) -> Model:
  """Makes the network of kind `config.kind` for the environment of `spec`.

  Args:
    config: kind, norm and sizes. `mlp`, `conv_latent` and `multi_input` read latent_size, head_size,
      num_dynamics_blocks (0 counts as 1) and num_prediction_blocks. `conv_latent` and `multi_input` also read
      channels. `resnet` reads all sizes but latent_size.
    history_length: L; the stacked history has L·(C + P) channels.
    chance: with codes, the model has chance nodes; `config.kind` is then `mlp`, `conv_latent` or
      `multi_input`.
    has_dynamics: whether the model has parameters for `recurrent_inference` and `project`.

  `init`, `root_inference` and `represent` raise ValueError for a stacked history of another shape.

  Raises: UserError: as `check_multi_input`.
  """
  if config.kind == "multi_input":
    check_multi_input("network.kind", spec, "conv_latent or resnet")
  input_shape = (*spec.frame_shape[:2], history_length * (spec.frame_shape[2] + spec.policy_size))
  transformed = hk.without_apply_rng(
    hk.multi_transform_with_state(
      lambda: _build(config, spec, history_length, transform, input_shape, chance, has_dynamics)
    )
  )
  root_inference, recurrent_inference, project, represent, *rest = transformed.apply
  chance_model = None
  if chance.codes:
    afterstate, outcome, encode = rest
    chance_model = ChanceModel(afterstate=afterstate, outcome=outcome, encode=encode, num_codes=chance.codes)
  return Model(
    init=transformed.init,
    root_inference=root_inference,
    recurrent_inference=recurrent_inference,
    project=project,
    represent=represent,
    policy_groups=spec.policy_groups,
    transform=transform,
    chance=chance_model,
  )


_TO_VECTOR: dict[str, Callable[[NetworkConfig, EnvSpec, int, str], Any]] = {
  "mlp": lambda config, spec, planes, name: MlpRepresentation(config, name),
  "conv_latent": lambda config, spec, planes, name: ConvLatentRepresentation(config, planes, name),
  "multi_input": MultiInputRepresentation,
}
"""The representations of the networks whose hidden state is a vector."""


def _latent(config: NetworkConfig, spec: EnvSpec, support_size: int, planes: int) -> "Parts":
  return (
    _TO_VECTOR[config.kind](config, spec, planes, "representation"),
    LatentPrediction(config, spec.policy_size, support_size),
    LatentDynamics(config, support_size),
    LatentProjection(config),
  )


Parts: TypeAlias = tuple[Any, Any, Any, Any]
"""Haiku modules or functions that use them: representation, prediction, dynamics and projection.

  representation: (stacked_history [B, H, W, Ch], is_training) → hidden state [B, …].
  prediction: (hidden state, is_training) → (value logits [B, S], policy logits [B, P]).
  dynamics: (hidden state, encoded action [B, P], is_training) → (hidden state, reward logits [B, S]). A
    user's dynamics takes the action [B] int32, unless the policy has several groups (`EnvSpec.is_factored`).
  projection: (hidden state, is_training) → an array of the hidden state's shape.
"""

NetworkMaker: TypeAlias = Callable[[NetworkConfig, int, int, int], Parts]
"""(config, policy_size P, support_size S, num_frame_planes) → Parts; called inside a Haiku transform.

`num_frame_planes` is the number of the stacked history's channels that hold frames; the rest hold actions.
"""

NETWORKS: dict[str, Callable[[NetworkConfig, EnvSpec, int, int], Parts]] = {
  **dict.fromkeys(_TO_VECTOR, _latent),
  "resnet": lambda config, spec, s, planes: (
    ResnetRepresentation(config, planes),
    ResnetPrediction(config, spec, s),
    ResnetDynamics(config, spec, s),
    ResnetProjection(config),
  ),
}
"""The built-in networks, by value of `network.kind`; `core.plugins.NETWORKS` has the user's."""


def _build(
  config: NetworkConfig,
  spec: EnvSpec,
  history_length: int,
  transform: ScalarTransform,
  input_shape: tuple[int, ...],
  chance: ChanceConfig,
  has_dynamics: bool,
) -> tuple[Any, tuple[Any, ...]]:
  """Returns an init that creates the parameters, and the model's functions, to be transformed.

  The functions are root, recurrent, project and represent, and with chance nodes also afterstate, outcome and
  encode.
  """
  planes, channels = history_length * spec.frame_shape[2], spec.frame_shape[2]
  make_parts = NETWORKS.get(config.kind, custom.make_parts)
  encode, predict, dynamics, project = make_parts(config, spec, transform.size, planes)
  observation_norm = ObservationNorm(spec.frame_shape) if config.normalize_observations else None
  if chance.codes:
    make_afterstate = LatentAfterstate(config, transform.size, chance)
    has_reward = chance.reward_from == "outcome"
    dynamics = LatentDynamics(config, transform.size, name="outcome", has_reward=has_reward)
    encode_outcome = make_encoder(
      config, chance, lambda own, name: _TO_VECTOR[config.kind](own, spec, planes + channels, name)
    )

  def represent(stacked_history: Float[Array, "B H W Ch"], is_training: bool) -> Float[Array, "B ..."]:
    if stacked_history.shape[1:] != input_shape:
      raise ValueError(
        f"stacked_history: shape {stacked_history.shape}: must be [B, {', '.join(map(str, input_shape))}]"
      )
    x = from_mover(stacked_history) if config.mover_view else stacked_history
    x = normalize(x, planes, is_training)
    return encode(center(x, planes, FRAME_NORM, is_training), is_training)

  def from_mover(stacked: Float[Array, "B H W Ch"]) -> Float[Array, "B H W Ch"]:
    if spec.player_planes is None:
      raise ValueError(f"network.mover_view: {spec.name} has no player_planes")
    first, second, mover = (np.arange(plane, planes, channels) for plane in spec.player_planes)
    order = np.arange(stacked.shape[-1])
    order[first], order[second] = second, first
    is_second = stacked[:, :1, :1, mover[-1] : mover[-1] + 1] > 0.5  # in the newest frame
    return jnp.where(is_second, stacked[..., order], stacked)

  def normalize(
    stacked: Float[Array, "B H W _"], num_planes: int, is_observed: bool
  ) -> Float[Array, "B H W _"]:
    if observation_norm is None:
      return stacked
    frames, actions = jnp.split(stacked, [num_planes], axis=-1)
    return jnp.concatenate([observation_norm(frames, is_observed), actions], axis=-1)

  def center(
    stacked: Float[Array, "B H W _"], num_planes: int, name: str, is_training: bool
  ) -> Float[Array, "B H W _"]:
    if not config.center_frames:
      return stacked
    frames, actions = jnp.split(stacked, [num_planes], axis=-1)
    norm = FrameNorm(config.batch_norm_decay, name=name)
    return jnp.concatenate([norm(frames, is_training), actions], axis=-1)

  def encode_transition(transition: Float[Array, "B H W _"], is_training: bool) -> Float[Array, "B N"]:
    transition = normalize(transition, planes + channels, False)
    centered = center(transition, planes + channels, TRANSITION_NORM, is_training)
    return encode_outcome(centered, is_training)

  def root(stacked_history: Float[Array, "B H W Ch"], is_training: bool) -> ModelOutput:
    x = represent(stacked_history, is_training)
    return evaluate(x, None, is_training)

  def evaluate(
    x: Float[Array, "B ..."], reward: Float[Array, "B S"] | None, is_training: bool
  ) -> ModelOutput:
    value, policy = predict(x, is_training)
    if reward is None:
      reward = jnp.broadcast_to(jnp.asarray(transform.zero_logits), value.shape)
    return ModelOutput(hidden_state=x, value_logits=value, reward_logits=reward, policy_logits=policy)

  def enter(
    hidden_state: Float[Array, "B ..."], edge: Int[Array, "B"] | Float[Array, "B N"], is_training: bool
  ) -> ModelOutput:
    x, reward = dynamics(hidden_state, edge, is_training)
    return evaluate(x, reward, is_training)

  def afterstate(
    hidden_state: Float[Array, "B ..."], action: Int[Array, "B"], is_training: bool
  ) -> AfterstateOutput:
    x, logits = make_afterstate(hidden_state, encode_action(action, spec.policy_groups), is_training)
    return AfterstateOutput(
      hidden_state=x,
      value_logits=logits["value"],
      chance_logits=logits["chance"],
      reward_logits=logits.get("reward"),
    )

  def recurrent(
    hidden_state: Float[Array, "B ..."], action: Int[Array, "B"], is_training: bool
  ) -> ModelOutput:
    if not chance.codes:
      # A user's network takes actions; of joint actions without entries of their own, the code.
      takes_action = config.kind not in NETWORKS and not spec.is_factored
      edge = action if takes_action else encode_action(action, spec.policy_groups)
      return enter(hidden_state, edge, is_training)
    after = afterstate(hidden_state, action, is_training)
    code = jax.nn.one_hot(jnp.argmax(after.chance_logits, axis=-1), chance.codes)
    return with_reward(enter(after.hidden_state, code, is_training), after)

  def init(stacked_history: Float[Array, "B H W Ch"]) -> None:
    x = represent(stacked_history, True)
    predict(x, True)
    if not has_dynamics:
      return
    projected = recurrent(x, jnp.full(x.shape[0], DUMMY_ACTION, jnp.int32), True).hidden_state
    project(projected, True)
    if chance.codes:
      two = stacked_history.shape[-1] + channels + spec.policy_size
      encode_transition(jnp.zeros((*stacked_history.shape[:-1], two)), True)

  shared = root, recurrent, project, represent
  return init, (*shared, afterstate, enter, encode_transition) if chance.codes else shared
