"""The loss of MuZero and AlphaZero, with the terms of chance nodes and the user's own terms."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Float32, Int32, Shaped, UInt32
from optax.losses import softmax_cross_entropy

from moozi.agent.augment import augment_frames
from moozi.core import plugins, user_code
from moozi.core.config import Config, LearnerConfig, TargetsConfig
from moozi.core.config.chance import ChanceConfig
from moozi.core.errors import UserError, one_line
from moozi.core.pytree import record, replace
from moozi.core.records import TrainTarget
from moozi.core.types import AnyArray
from moozi.nn.chance import straight_through
from moozi.nn.horizon import discount_of
from moozi.nn.model import AfterstateOutput, Model, ModelOutput, NetState, Params, with_reward
from moozi.ops.history import normalize_frame, stack_history
from moozi.ops.policy import log_policy, policy_cross_entropy, policy_entropy
from moozi.ops.scalar_transform import ScalarTransform


@record
class LossAux:
  """The auxiliary output of the loss.

  Attributes:
    net_state: the network's state after the unroll.
    value_error: |Φ⁻¹(value logits at k = 0) − z_0| in env units, for priorities; with K = 0, 0 where masked.
    metrics: scalars by name.
  """

  net_state: NetState
  value_error: Float32[Array, "B"]
  metrics: dict[str, Float[Array, ""]]


LossFn = Callable[..., tuple[Float[Array, ""], LossAux]]
"""(params, target_params, net_state, target, learner_step, rng_key) → (loss, LossAux).

The defaults of `learner_step` and `rng_key` are 0 and None. Augmentation needs a key.
"""

ExtraLoss = Callable[[Params, NetState, list[ModelOutput], TrainTarget], Float[Array, "B"]]
"""(params, net_state, outputs, target) → [B]: a user's loss term, already multiplied by its coefficient.

`net_state` is the network's state before the unroll; `outputs` are the K + 1 outputs of the unroll.
"""

ExtraLossMaker = Callable[[Config, Model], ExtraLoss]
"""(config, model) → ExtraLoss: the type of the functions that `learner.extra_losses` names."""

# The metrics that `make_loss` itself computes, without the prefix `loss/`.
_OWN_TERMS = re.compile(
  r"(policy|value|reward|afterstate_value|chance|commitment)(_\d+)?|consistency|l2|total"
)


def extra_terms(learner: LearnerConfig) -> dict[str, str]:
  """Returns the values of `learner.extra_losses` by the names of their metrics.

  The metric of the value `my_loss:make` is `loss/my_loss.make`.

  Raises: UserError: two terms have the same metric, or a term has the metric of a built-in term.
  """
  names = {f"loss/{value.replace(':', '.')}": value for value in learner.extra_losses}
  if len(names) < len(learner.extra_losses):
    raise UserError(f"learner.extra_losses={list(learner.extra_losses)}: a term is listed twice")
  for name, value in names.items():
    if _OWN_TERMS.fullmatch(name.removeprefix("loss/")):
      raise UserError(f"learner.extra_losses={value}: {name} is a built-in metric; choose another name")
  return names


def make_extra_losses(config: Config, model: Model) -> dict[str, ExtraLoss]:
  """Returns the loss terms of `learner.extra_losses` by the names of their metrics.

  Raises: UserError: as `extra_terms`, or a function cannot be found, fails, or returns no function. When
    traced, a term raises it unless it returns a float array [B].
  """
  terms = extra_terms(config.learner)
  return {
    name: _make_extra_loss(plugins.LOSSES.get(value, f"learner.extra_losses[{i}]"), config, model)
    for i, (name, value) in enumerate(terms.items())
  }


def _make_extra_loss(plugin: user_code.Plugin, config: Config, model: Model) -> ExtraLoss:
  function = plugin(config, model)
  if not callable(function):
    raise UserError(f"{plugin.where}: returns {one_line(function, 80)}; must return a function")

  def loss(params: Params, net_state: NetState, outputs: list[ModelOutput], target: TrainTarget) -> Any:
    with plugin.errors("the loss failed"):
      out = function(params, net_state, outputs, target)
      batch = len(target.importance_ratio)
      is_float = isinstance(out, jax.Array) and jnp.issubdtype(out.dtype, jnp.floating)
      if not is_float or out.shape != (batch,):
        has = f"{out.dtype}{list(out.shape)}" if isinstance(out, jax.Array) else type(out).__name__
        raise UserError(
          f"{plugin.where}: the loss is {has}; must be a float array [{batch}], one for each sample"
        )
    return out

  return loss


def make_loss(
  model: Model,
  learner: LearnerConfig,
  targets: TargetsConfig,
  frame_dtype: str,
  extra: Mapping[str, ExtraLoss] | None = None,
  chance: ChanceConfig = ChanceConfig(),  # noqa: B008 - frozen
) -> LossFn:
  """Returns the loss function, a `LossFn`.

  L = c^L2 ‖θ‖²
    + mean_B ρ [ l^p_0 + Σ_k l^p_k / K + c^v (l^v_0 + Σ_k l^v_k / K) + c^r Σ_k l^r_k / K + c^s l^s + Σ l ]

  θ are the parameters, ρ the importance ratios, and l^s the self-consistency loss. The last sum is over the
  user's terms. The value targets are the n-step returns. Policy, value and reward terms are cross-entropies.
  Masked terms are 0 and count in the mean.

  With K = 0 (AlphaZero) the reward and self-consistency terms are absent, and the last frame of an episode is
  masked: a search with the true rules does not use the network's outputs for a terminal frame.

  A model with chance nodes adds ρ Σ_k (c^v l^a_k + c^c l^c_k + c^m l^m_k) / K, over the transitions
  k = 1 … K. The encoder maps the transition from step k-1 to k to outputs e. The one-hot vector of the
  largest output is the code, which the unroll takes as the outcome; its gradient passes to e unchanged. The
  target of the afterstate's value (l^a) is the return z of step k-1, or (z − u_k) / γ if the afterstate
  predicts the reward u_k. The target of the code logits (l^c) is the code. The commitment loss
  l^m = ‖code − e‖² moves e towards the code.

  c^s rises linearly to `consistency_coef` during the first `consistency_warmup_steps` learner steps. With
  `max_shift` or `intensity_jitter`, the root's frames and those of the consistency target are augmented
  independently (`augment_frames`); the transitions of chance nodes are not augmented.

  The metric `loss/<term>` is the term without its coefficient, except for a user's term. `loss/<term>_<k>` is
  its contribution at step k, before division by K. Both are weighted by ρ as in the loss.

  Args:
    learner: coefficients; if `scale_reward_loss` is False, reward losses are not divided by K (thesis).
    targets: K, L, and for chance nodes γ, unless the state carries another (`nn.horizon`).
    extra: the user's terms l, by the names of their metrics.
    chance: the coefficients c^c and c^m of a model with chance nodes.

  When traced, the loss function raises ValueError for a target with another K or L, and, with augmentation,
  without a random key.

  Source: thesis 4.3.8; Schrittwieser et al. 2020, equation 1; Antonoglou et al. 2022. Departures:
    reward losses are scaled by 1/K by default; L2 is not scaled by ρ; two errata of the thesis are corrected
    (it swaps the arguments of the reward loss, and its value loss names v* instead of the network's value).
  """
  extra_losses = dict(extra or {})
  is_unrolled = targets.unroll_steps > 0

  def loss_fn(
    params: Params,
    target_params: Params,
    net_state: NetState,
    target: TrainTarget,
    learner_step: Int32[Array, ""] | int = 0,
    rng_key: UInt32[Array, "2"] | None = None,
  ) -> tuple[Float[Array, ""], LossAux]:
    _check_target(target, targets, model)
    if not is_unrolled:
      target = replace(target, unroll_mask=target.unroll_mask * target.consistency_mask[:, None])
    frames = normalize_frame(target.frames, frame_dtype)
    length = targets.history_length

    def stack(first: int, num: int) -> Float[Array, "B H W Ch"]:
      at = slice(first, first + num)
      return stack_history(frames[:, at], target.history_actions[:, at], model.policy_groups)

    def augment(stacked: Float[Array, "B H W Ch"], view: int) -> Float[Array, "B H W Ch"]:
      if not learner.augments:
        return stacked
      if rng_key is None:
        raise ValueError("rng_key: must be a random key with learner.max_shift or intensity_jitter")
      planes, actions = jnp.split(stacked, [length * frames.shape[-1]], axis=-1)
      key = jax.random.fold_in(rng_key, view)
      planes = augment_frames(planes, first_net_state, learner.max_shift, learner.intensity_jitter, key)
      return jnp.concatenate([planes, actions], axis=-1)

    first_net_state = net_state
    history = augment(stack(0, length), 0)
    scale = learner.dynamics_gradient_scale
    codes: Any = None
    if model.chance is not None:
      transitions = jnp.concatenate([stack(k, length + 1) for k in range(targets.unroll_steps)])
      codes, net_state = model.chance.encode(params, net_state, transitions, True)
      codes = jnp.split(codes, targets.unroll_steps)
    outputs, afterstates, net_state = _unroll(model, params, net_state, history, target, scale, codes)
    terms = _data_terms(model, outputs, target)
    if codes is not None:
      discount = discount_of(net_state, targets.discount)
      terms |= _chance_terms(model.transform, afterstates, codes, target, discount)
    consistency = jnp.zeros_like(target.importance_ratio)
    if learner.consistency_coef > 0 and is_unrolled:
      encoder = target_params if learner.consistency_from_target else params
      next_history = augment(stack(1, length), 1)
      # The averages of norms of this call are dropped, because the next frames are not part of the unroll.
      next_state, _ = model.represent(encoder, net_state, next_history, True)
      projected, net_state = model.project(params, net_state, outputs[1].hidden_state, True)
      consistency = target.consistency_mask * _cosine_distance(projected, jax.lax.stop_gradient(next_state))
    rho = target.importance_ratio
    metrics: dict[str, Any] = _weighted_means(terms, rho, learner.scale_reward_loss)
    if is_unrolled:
      metrics["loss/consistency"] = jnp.mean(rho * consistency)
    metrics["loss/l2"] = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree_util.tree_leaves(params))
    loss = (
      metrics["loss/policy"]
      + learner.value_coef * metrics["loss/value"]
      + learner.reward_coef * metrics.get("loss/reward", 0.0)
      + _consistency_coef(learner, learner_step) * metrics.get("loss/consistency", 0.0)
      + (learner.l2_coef * metrics["loss/l2"] if learner.l2_coef > 0 else 0.0)
    )
    if codes is not None:
      loss = loss + (
        learner.value_coef * metrics["loss/afterstate_value"]
        + chance.coef * metrics["loss/chance"]
        + chance.commitment_coef * metrics["loss/commitment"]
      )
    for name, term in extra_losses.items():
      metrics[name] = jnp.mean(rho * term(params, first_net_state, outputs, target))
      loss = loss + metrics[name]
    metrics["loss/total"] = loss
    value_error = jnp.abs(model.transform.to_scalar(outputs[0].value_logits) - target.n_step_returns[:, 0])
    if not is_unrolled:
      value_error = value_error * target.unroll_mask[:, 0]
    metrics |= _diagnostics(model, outputs, target, value_error)
    if codes is not None:
      metrics |= _chance_diagnostics(afterstates, codes, target)
    aux = LossAux(net_state=net_state, value_error=value_error, metrics=metrics)
    return loss, jax.lax.stop_gradient(aux)

  return loss_fn


def _consistency_coef(learner: LearnerConfig, learner_step: Int32[Array, ""] | int) -> Any:
  """Returns the coefficient of the consistency loss at a learner step."""
  warmup = learner.consistency_warmup_steps
  if not warmup:
    return learner.consistency_coef
  return learner.consistency_coef * jnp.minimum(1.0, (learner_step + 1) / warmup)


def _check_target(target: TrainTarget, targets: TargetsConfig, model: Model) -> None:
  if target.actions.shape[1] != targets.unroll_steps:
    raise ValueError(
      f"actions: {target.actions.shape[1]} unroll steps, must be targets.unroll_steps={targets.unroll_steps}"
    )
  ahead = 1 if model.chance is None else targets.unroll_steps
  if target.frames.shape[1] != targets.history_length + ahead:
    raise ValueError(
      f"frames: {target.frames.shape[1]}, must be history_length + {ahead} = {targets.history_length + ahead}"
    )


def _unroll(
  model: Model,
  params: Params,
  net_state: NetState,
  history: Float[AnyArray, "B H W Ch"],
  target: TrainTarget,
  gradient_scale: float,
  codes: list[Float[Array, "B N"]] | None,
) -> tuple[list[ModelOutput], list[AfterstateOutput], NetState]:
  """Returns the K + 1 outputs of a root inference and K recurrent inferences, and the K afterstates.

  The gradient of the hidden state is scaled before each recurrent inference or afterstate.
  The loop is in Python, because XLA on the CPU runs the gradient of a convolution more slowly inside a scan.

  Args:
    codes: the encoder's outputs for each transition; None for a deterministic model.
  """
  output, net_state = model.root_inference(params, net_state, history, True)
  outputs, afterstates = [output], []
  for k in range(target.actions.shape[1]):
    hidden_state, action = optax.scale_gradient(output.hidden_state, gradient_scale), target.actions[:, k]
    if codes is None or model.chance is None:
      output, net_state = model.recurrent_inference(params, net_state, hidden_state, action, True)
    else:
      after, net_state = model.chance.afterstate(params, net_state, hidden_state, action, True)
      afterstates.append(after)
      code = straight_through(codes[k])
      output, net_state = model.chance.outcome(params, net_state, after.hidden_state, code, True)
      output = with_reward(output, after)
    outputs.append(output)
  return outputs, afterstates, net_state


def _data_terms(
  model: Model, outputs: list[ModelOutput], target: TrainTarget
) -> dict[str, list[Float[Array, "B"]]]:
  """Returns the masked cross-entropies: policy and value at k = 0 … K, reward at k = 1 … K if K > 0."""
  mask, transform = target.unroll_mask, model.transform
  value_probs = transform.to_probs(target.n_step_returns)
  terms = {
    "policy": [
      mask[:, k] * policy_cross_entropy(o.policy_logits, target.action_probs[:, k], model.policy_groups)
      for k, o in enumerate(outputs)
    ],
    "value": [
      mask[:, k] * softmax_cross_entropy(o.value_logits, value_probs[:, k]) for k, o in enumerate(outputs)
    ],
  }
  if len(outputs) > 1:
    reward_probs = transform.to_probs(target.rewards)
    terms["reward"] = [
      mask[:, k] * softmax_cross_entropy(outputs[k].reward_logits, reward_probs[:, k - 1])
      for k in range(1, len(outputs))
    ]
  return terms


def _chance_terms(
  transform: ScalarTransform,
  afterstates: list[AfterstateOutput],
  codes: list[Float[Array, "B N"]],
  target: TrainTarget,
  discount: Float[AnyArray, ""] | float,
) -> dict[str, list[Float[Array, "B"]]]:
  """Returns the masked terms of the transitions k = 1 … K; see `make_loss`."""
  mask = target.unroll_mask[:, 1:]
  values = target.n_step_returns[:, :-1]
  if afterstates[0].reward_logits is not None:
    values = (values - target.rewards) / discount
  value_probs = transform.to_probs(values)
  one_hot = [jax.lax.stop_gradient(straight_through(e)) for e in codes]
  return {
    "afterstate_value": [
      mask[:, k] * softmax_cross_entropy(a.value_logits, value_probs[:, k]) for k, a in enumerate(afterstates)
    ],
    "chance": [
      mask[:, k] * softmax_cross_entropy(a.chance_logits, one_hot[k]) for k, a in enumerate(afterstates)
    ],
    "commitment": [mask[:, k] * jnp.sum(jnp.square(one_hot[k] - e), axis=-1) for k, e in enumerate(codes)],
  }


def _chance_diagnostics(
  afterstates: list[AfterstateOutput], codes: list[Float[Array, "B N"]], target: TrainTarget
) -> dict[str, Float[Array, ""]]:
  """Returns metrics of the codes, over unmasked transitions.

  `chance/codes_used` is the exponential of the entropy of the codes' frequencies: the effective number of
  codes in use. `chance/entropy` is the mean entropy of the predicted code probabilities, in nats.
  """
  mask = target.unroll_mask[:, 1:].T[..., None]
  count = jnp.maximum(jnp.sum(mask), 1.0)
  used = jnp.sum(mask * straight_through(jnp.stack(codes)), axis=(0, 1)) / count
  predicted = jax.nn.log_softmax(jnp.stack([a.chance_logits for a in afterstates]))
  return {
    "chance/codes_used": jnp.exp(-jnp.sum(used * jnp.log(jnp.maximum(used, 1e-30)))),
    "chance/entropy": jnp.sum(mask * -jnp.exp(predicted) * predicted) / count,
  }


def _weighted_means(
  terms: dict[str, list[Float[Array, "B"]]], rho: Float[AnyArray, "B"], scale_reward_loss: bool
) -> dict[str, Float[Array, ""]]:
  """Returns the metrics `loss/<term>` and `loss/<term>_<k>` of terms that have a value per step."""
  metrics: dict[str, Any] = {}
  num_steps = max(len(terms["policy"]) - 1, 1)
  for name, addends in terms.items():
    first_k = 0 if name in ("policy", "value") else 1
    scale = 1.0 if name == "reward" and not scale_reward_loss else 1.0 / num_steps
    means = [jnp.mean(rho * addend) for addend in addends]
    metrics |= {f"loss/{name}_{first_k + i}": mean for i, mean in enumerate(means)}
    unrolled = sum(means[1 - first_k :]) * scale
    metrics[f"loss/{name}"] = unrolled if first_k else means[0] + unrolled
  return metrics


def _cosine_distance(a: Float[Array, "B *state"], b: Float[Array, "B *state"]) -> Float[Array, "B"]:
  """Returns 1 − cos(a, b) for each sample; its gradient is finite even where a or b is 0."""
  a, b = a.reshape(a.shape[0], -1), b.reshape(b.shape[0], -1)
  norms = jnp.sum(a * a, axis=-1) * jnp.sum(b * b, axis=-1)
  return 1.0 - jnp.sum(a * b, axis=-1) * jax.lax.rsqrt(jnp.maximum(norms, 1e-12))


def state_metrics(hidden_state: Float[Array, "B *state"]) -> dict[str, Float[Array, ""]]:
  """Returns metrics of how much the hidden states of a batch differ.

  `state/cosine` is the mean cosine similarity over pairs of states. `state/spread` is the root mean square,
  over states and dimensions, of the difference from the mean state. `state/rank` is the participation ratio
  (Σλ)² / Σλ² of the eigenvalues λ of the states' covariance: the effective number of dimensions. If all
  states are equal and not zero, the metrics are 1, 0 and 0.
  """
  x = hidden_state.reshape(hidden_state.shape[0], -1)
  batch = x.shape[0]
  unit = x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x, axis=-1, keepdims=True), 1e-12))
  pairs = max(batch * (batch - 1), 1)
  centred = x - jnp.mean(x, axis=0)
  gram = centred @ centred.T
  trace = jnp.trace(gram)
  return {
    "state/cosine": (jnp.sum(jnp.square(jnp.sum(unit, axis=0))) - batch) / pairs,
    "state/spread": jnp.sqrt(trace / x.size),
    "state/rank": jnp.square(trace) / jnp.maximum(jnp.sum(jnp.square(gram)), 1e-12),
  }


def _diagnostics(
  model: Model, outputs: list[ModelOutput], target: TrainTarget, value_error: Float[Array, "B"]
) -> dict[str, Float[Array, ""]]:
  transform = model.transform
  unrolled: dict[str, Any] = {}
  if len(outputs) > 1:
    mask = target.unroll_mask[:, 1:]

    def mean(x: Shaped[AnyArray, "B K"], axis: int | None = None) -> Float[Array, "..."]:
      return jnp.sum(mask * x, axis) / jnp.maximum(jnp.sum(mask, axis), 1.0)

    rewards = jnp.stack([transform.to_scalar(o.reward_logits) for o in outputs[1:]], axis=1)
    values = jnp.stack([transform.to_scalar(o.value_logits) for o in outputs[1:]], axis=1)
    errors = {
      "reward": jnp.abs(rewards - target.rewards),
      "value": jnp.abs(values - target.n_step_returns[:, 1:]),
    }
    unrolled = {
      "error/reward": mean(errors["reward"]),
      "targets/zero_rewards": mean(target.rewards == 0),
      "targets/clipped_rewards": mean(transform.is_clipped(target.rewards)),
    }
    for name, error in errors.items():
      unrolled |= {f"error/{name}_{k}": x for k, x in enumerate(mean(error, axis=0), start=1)}
  predicted = log_policy(outputs[0].policy_logits, model.policy_groups)
  target_probs = target.action_probs[:, 0]
  is_clipped = transform.is_clipped(target.n_step_returns) * target.unroll_mask
  return {
    "error/value": jnp.mean(value_error),
    "targets/clipped_values": jnp.sum(is_clipped) / jnp.maximum(jnp.sum(target.unroll_mask), 1.0),
    **unrolled,
    "policy/entropy": jnp.mean(policy_entropy(predicted)),
    "policy/target_entropy": jnp.mean(
      -jnp.sum(target_probs * jnp.log(jnp.maximum(target_probs, 1e-30)), axis=-1)
    ),
    **state_metrics(outputs[0].hidden_state),
    "importance_ratio/mean": jnp.mean(target.importance_ratio),
    "importance_ratio/max": jnp.max(target.importance_ratio),
  }
