"""The PPO baseline's network and agent, as pure functions.

Source: Huang et al. 2022, core details 2 and 13, Atari details 7 to 9 (frames stacked, one shared network of
three convolutions, frames in [0, 1]), and robotics details 1 to 5 (continuous actions: independent normal
distributions whose standard deviations do not depend on the frame; separate networks; clipped actions); of
its further details, invalid action masking (illegal actions have logit -inf). Departures:
  - Frames before an episode's start are zero, as in VecFrameStack of `openai/baselines`. The source's
    programs use FrameStack, which repeats the first frame.
  - After a lost life, the stack keeps the earlier frames. VecFrameStack and FrameStack reset the stack.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Num, PyTree, Shaped

from moozi.agent.agent import Decision, PureAgent, Temperature, make_agent
from moozi.agent.recurrent import make_recurrent_agent
from moozi.baselines.observations import NetState, normalized
from moozi.baselines.ppo.lstm import IS_FIRST, LSTM_STATE, Lstm, Memory
from moozi.core.config.ppo import BaselineNetworkConfig
from moozi.core.factors import Intervals
from moozi.core.pytree import register_records, replace
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec, check_multi_input
from moozi.core.types import AnyArray
from moozi.ops.actions import Groups
from moozi.ops.frame_parts import stack_parts
from moozi.ops.gaussian import draw_gaussian, gaussian_entropy, gaussian_log_prob
from moozi.ops.history import HistoryState, normalize_frame
from moozi.ops.policy import draw_action, log_prob_of, masked_log_probs, policy_entropy
from moozi.ops.running_stats import CLIP
from moozi.ops.scalar_transform import ScalarTransform

MIN_NATURE_FRAME = 36
"""Minimum frame height and width of nature_conv's three convolutions."""


@dataclasses.dataclass(frozen=True)
class PPONetwork:
  """The network as pure functions.

  Attributes:
    init: (rng_key, frames) → params.
    apply: (params, frames [B, L, H, W, C] of the spec's dtype) → (policy float32, head float32). The policy
      has the logits [B, P]; with continuous actions, the parameters [B, 2 D] of `ops.gaussian`. Without a
      transform, the head is the value [B] in units of the learned rewards; with one, its logits [B, S]. With
      an LSTM, `apply` treats each frame as the first of a game.
    transform: the scalar transform of a categorical value, or None.
    policy_groups: see `EnvSpec.policy_groups`; None: one group.
    unroll: (params, frames [T·B, …], Memory) → (policy, head, state [B, K, 2, S] after them); None without an
      LSTM.
    state_shape: K, 2, S of `Memory`; None without an LSTM.
    intervals: see `EnvSpec.intervals`.
  """

  init: Callable[[Array, AnyArray], PyTree]
  apply: Callable[[PyTree, AnyArray], tuple[Array, Array]]
  transform: ScalarTransform | None = None
  policy_groups: Groups | None = None
  unroll: Callable[[PyTree, AnyArray, Memory], tuple[Array, Array, Array]] | None = None
  state_shape: tuple[int, ...] | None = None
  intervals: Intervals | None = None

  def value(self, head: Float[AnyArray, "B *S"]) -> Float[AnyArray, "B"]:
    """Returns the value of a head, in units of the learned rewards."""
    return head if self.transform is None else self.transform.to_scalar(head)

  def distribution(
    self, policy: Float[AnyArray, "N P"], legal_actions_mask: Bool[AnyArray, "N _"]
  ) -> Float[Array, "N P"]:
    """Returns log probabilities as `masked_log_probs`; with continuous actions, the unchanged parameters."""
    if self.intervals is not None:
      return policy
    return masked_log_probs(policy, legal_actions_mask, self.policy_groups)

  def log_prob(
    self, distribution: Float[AnyArray, "N P"], action: Num[AnyArray, "N *D"]
  ) -> Float[Array, "N"]:
    """Returns the log probability, or density, of actions as they were drawn."""
    if self.intervals is not None:
      return gaussian_log_prob(distribution, action)
    return log_prob_of(distribution, action, self.policy_groups)

  def entropy(
    self, distribution: Float[AnyArray, "N P"], legal_actions_mask: Bool[AnyArray, "N _"]
  ) -> Float[Array, "N"]:
    """Returns the entropy of a distribution, in nats."""
    if self.intervals is not None:
      return gaussian_entropy(distribution)
    return policy_entropy(distribution, legal_actions_mask)


def make_network(
  config: BaselineNetworkConfig,
  spec: EnvSpec,
  scale_frames: bool = True,
  initial_bias: float = 0.0,
  conv_stride: int = 1,
  layer_norm: bool = False,
  transform: ScalarTransform | None = None,
  lstm_size: int = 0,
  lstm_forget_bias: float = 0.0,
) -> PPONetwork:
  """Builds the network that `config` describes. With discrete actions, the dummy has a logit too.

  With continuous actions, the log standard deviations are parameters that do not depend on the frame, 0 at
  first.

  Args:
    scale_frames: whether to divide uint8 frames by 255.
    initial_bias: upper bound of the initial biases; all layers draw them uniformly from 0 to this bound.
    conv_stride: stride of the 3×3 convolutions, of the kinds `conv` and `multi_input`.
    layer_norm: whether to apply layer norm over the last axis before every activation.
    transform: the scalar transform of a categorical value; None: the value head has one output.
    lstm_size: size of the LSTM between the dense layers and the heads; 0: none.
    lstm_forget_bias: added to the initial biases of the LSTM's forget gate.

  Raises: UserError: as `check_multi_input`.
  """
  register_records()
  if config.kind == "multi_input":
    check_multi_input("network.kind", spec, "conv")
  layers = _Layers(config, initial_bias, conv_stride, layer_norm, lstm_forget_bias)
  is_shared = config.sharing == "shared"
  state_shape = (1 if is_shared else 2, 2, lstm_size) if lstm_size else None

  def forward(
    frames: Shaped[AnyArray, "TB L H W C"], memory: Memory | None = None
  ) -> tuple[Float[Array, "TB A"], Float[Array, "TB *S"], Float[Array, "B K 2 S"] | None]:
    # normalize_frame does not change float32 frames.
    x = normalize_frame(frames, spec.frame_dtype if scale_frames else "float32")
    x = x if config.kind == "multi_input" else _stack(x)
    names = ("trunk",) if is_shared else ("policy_trunk", "value_trunk")
    hidden, state = [_trunk(layers, name, x, spec) for name in names], None
    if state_shape is not None:
      hidden, state = _remember(layers, names, hidden, state_shape, memory)
    if spec.is_continuous:
      mean = layers.linear(spec.mask_size, 0.01, "policy")(hidden[0])
      log_std = hk.Bias(name="log_std")(jnp.zeros_like(mean))
      logits = jnp.concatenate([mean, log_std], axis=-1)
    else:
      logits = layers.linear(spec.policy_size, 0.01, "policy")(hidden[0])
    head = layers.linear(1 if transform is None else transform.size, 1.0, "value")(hidden[-1])
    return logits, head[:, 0] if transform is None else head, state

  transformed = hk.without_apply_rng(hk.transform(forward))

  def apply(params: PyTree, frames: AnyArray) -> tuple[Array, Array]:
    logits, head, _ = transformed.apply(params, frames)
    return logits, head

  unroll = transformed.apply if lstm_size else None
  return PPONetwork(
    transformed.init, apply, transform, spec.policy_groups, unroll, state_shape, spec.intervals
  )


def _stack(frames: Shaped[AnyArray, "B L H W C"]) -> Shaped[Array, "B H W LC"]:
  x = jnp.moveaxis(frames, 1, -2)
  return x.reshape(*x.shape[:3], -1)


def _trunk(
  layers: "_Layers", name: str, x: Float[AnyArray, "B *cells D"], spec: EnvSpec
) -> Float[Array, "B N"]:
  """Returns the last dense layer; `x` is `_stack` of the frames, but with `multi_input` the frames."""
  config = layers.config
  if config.kind == "multi_input":
    x = _joined(layers, name, x, spec)
  else:
    x = _convolved(layers, name, x, config.kind)
  x = x.reshape(x.shape[0], -1)
  for i, width in enumerate(config.hidden_sizes):
    x = layers.dense(x, width, f"{name}_dense_{i}")
  return x


def _joined(
  layers: "_Layers", name: str, frames: Float[AnyArray, "B L 1 1 D"], spec: EnvSpec
) -> Float[Array, "B N"]:
  """Returns the convolved images of frames, and a dense layer of the first size on their other numbers."""
  images, numbers = stack_parts(frames[:, :, 0, 0], spec.frame_parts)
  for width in layers.config.hidden_sizes[:1]:
    numbers = layers.dense(numbers, width, f"{name}_numbers")
  features = [numbers]
  for i, image in enumerate(images):
    kind = "nature_conv" if min(image.shape[1:3]) >= MIN_NATURE_FRAME else "conv"
    x = _convolved(layers, f"{name}_image_{i}", image, kind)
    features.append(x.reshape(x.shape[0], -1))
  return jnp.concatenate(features, axis=-1)


def _convolved(
  layers: "_Layers", name: str, x: Float[Array, "B H W C"], kind: str
) -> Float[Array, "B h w D"]:
  config = layers.config
  if kind == "conv":
    one = isinstance(config.channels, int)
    for i, channels in enumerate((config.channels,) if isinstance(config.channels, int) else config.channels):
      stride = layers.conv_stride
      # Without padding, a stride above 1 could leave out the last row and column.
      padding = "VALID" if stride == 1 and min(x.shape[1:3]) >= 3 else "SAME"
      conv = layers.conv(channels, 3, stride, padding, f"{name}_conv" if one else f"{name}_conv_{i}")
      x = jax.nn.relu(layers.norm(conv(x)))
  elif kind == "nature_conv":
    for i, (channels, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1))):
      x = jax.nn.relu(layers.norm(layers.conv(channels, size, stride, "VALID", f"{name}_conv_{i}")(x)))
  return x


def _remember(
  layers: "_Layers",
  names: Sequence[str],
  hidden: Sequence[Float[Array, "TB D"]],
  state_shape: tuple[int, ...],
  memory: Memory | None,
) -> tuple[list[Float[Array, "TB S"]], Float[Array, "B K 2 S"]]:
  """Returns the outputs of one LSTM for each trunk, and their states after the last frames."""
  num_samples = len(hidden[0])
  if memory is None:
    blank = jnp.zeros((num_samples, *state_shape), jnp.float32)
    memory = Memory(state=blank, is_first=jnp.ones(num_samples, bool))
  num_envs, out, states = len(memory.state), [], []
  for i, (name, x) in enumerate(zip(names, hidden, strict=True)):
    sequences = x.reshape(-1, num_envs, x.shape[-1])
    is_first = jnp.asarray(memory.is_first).reshape(-1, num_envs)
    y, state = layers.lstm(state_shape[-1], f"{name}_lstm")(
      sequences, jnp.asarray(memory.state)[:, i], is_first
    )
    out.append(y.reshape(num_samples, -1))
    states.append(state)
  return out, jnp.stack(states, axis=1)


@dataclasses.dataclass(frozen=True)
class _Layers:
  config: BaselineNetworkConfig
  initial_bias: float
  conv_stride: int
  layer_norm: bool
  forget_bias: float

  def linear(self, width: int, scale: float, name: str) -> hk.Linear:
    return hk.Linear(width, w_init=self._weights(scale), b_init=self._biases(), name=name)

  def dense(self, x: Float[Array, "B D"], width: int, name: str) -> Float[Array, "B _"]:
    """Applies a linear layer, the norm and the activation."""
    activation = jnp.tanh if self.config.activation == "tanh" else jax.nn.relu
    return activation(self.norm(self.linear(width, math.sqrt(2), name)(x)))

  def conv(self, channels: int, size: int, stride: int, padding: str, name: str) -> hk.Conv2D:
    weights, biases = self._weights(math.sqrt(2)), self._biases()
    return hk.Conv2D(channels, size, stride, padding=padding, w_init=weights, b_init=biases, name=name)

  def lstm(self, size: int, name: str) -> Lstm:
    return Lstm(size, self._weights(1.0), self._biases(), self.forget_bias, name)

  def norm(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    return hk.LayerNorm(-1, create_scale=True, create_offset=True)(x) if self.layer_norm else x

  def _weights(self, scale: float) -> Any:
    if self.config.orthogonal_init:
      return hk.initializers.Orthogonal(scale)
    return hk.initializers.VarianceScaling(1.0, "fan_in", "truncated_normal")

  def _biases(self) -> Any:
    # Without an initial bias, no biases are drawn, so the option does not change the weights.
    return hk.initializers.RandomUniform(0.0, self.initial_bias) if self.initial_bias else jnp.zeros


def make_ppo(
  network: PPONetwork, spec: EnvSpec, history_length: int, observation_clip: float = CLIP
) -> PureAgent:
  """Returns the agent whose variables are (params, net_state).

  With statistics of observations in `net_state`, the network's input is normalized and clipped to
  ±observation_clip.

  Actions are drawn with probabilities raised to the power 1/temperature; at temperature 0 the agent takes the
  most probable action. `action_probs` is always at temperature 1. The extras:
    frames: [B, L, H, W, C], the history before it is normalized.
    log_probs: [B, P], at temperature 1, as `masked_log_probs`.
    lstm_state, is_first: with an LSTM, see `baselines.ppo.lstm`.
  With continuous actions, the most probable action is the mean, `action_probs` is 1 in each dimension, and in
  place of log_probs the extras are:
    drawn: [B, D], the action before it is clipped to its bounds.
    gaussian: [B, 2 D], the policy's parameters.
  """

  def shown(net_state: NetState, history: HistoryState) -> AnyArray:
    return normalized(net_state, history.frames, observation_clip)

  def decide_by(
    logits: Float[Array, "B P"],
    head: Float[Array, "B *S"],
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Temperature,
    position: Any,
  ) -> Decision:
    del position
    if network.intervals is not None:
      action, drawn, params = draw_gaussian(logits, rng_key, temperature, network.intervals)
      return Decision(
        action=action,
        action_probs=jnp.asarray(timestep.legal_actions_mask, jnp.float32),
        root_value=network.value(head),
        extras={"frames": history.frames, "drawn": drawn, "gaussian": params},
      )
    # Logits that are not finite are those of non-finite parameters, which the learner handles.
    action, log_probs = draw_action(
      logits, timestep.legal_actions_mask, rng_key, temperature, spec.policy_groups
    )
    return Decision(
      action=action,
      action_probs=jnp.where(timestep.legal_actions_mask, jnp.exp(log_probs), 0.0),
      root_value=network.value(head),
      extras={"frames": history.frames, "log_probs": log_probs},
    )

  def decide(variables: PyTree, history: HistoryState, *args: Any) -> Decision:
    params, net_state = variables
    return decide_by(*network.apply(params, shown(net_state, history)), history, *args)

  unroll, state_shape = network.unroll, network.state_shape
  if unroll is None or state_shape is None:
    return make_agent(decide, spec, history_length)

  def decide_with_state(
    variables: PyTree, state: AnyArray, history: HistoryState, timestep: BatchedTimeStep, *args: Any
  ) -> tuple[Decision, Array]:
    memory = Memory(state=state, is_first=timestep.is_first)
    params, net_state = variables
    logits, head, after = unroll(params, shown(net_state, history), memory)
    decision = decide_by(logits, head, history, timestep, *args)
    extras = decision.extras | {LSTM_STATE: jnp.asarray(state), IS_FIRST: jnp.asarray(timestep.is_first)}
    return replace(decision, extras=extras), after

  @jax.jit
  def advance(variables: PyTree, state: AnyArray, history: HistoryState, timestep: BatchedTimeStep) -> Array:
    params, net_state = variables
    return unroll(params, shown(net_state, history), Memory(state=state, is_first=timestep.is_first))[2]

  def blank(num_lanes: int) -> np.ndarray:
    return np.zeros((num_lanes, *state_shape), np.float32)

  return make_recurrent_agent(decide_with_state, advance, blank, spec, history_length)
