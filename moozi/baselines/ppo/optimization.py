"""Proximal policy optimization as pure functions: advantages, loss, updates.

Source: Schulman et al. 2017; Huang et al. 2022, "The 37 Implementation Details of Proximal Policy
Optimization"; docs/ppo.md lists all of them. Departures:
  - Environments show the last frame of an episode and discard the action on it. That sample is masked
    (`is_live`): it is part of a minibatch, but does not enter means or gradients. A sample at which a past
    self moved is masked too, because the policy did not choose that action.
  - The standard deviation of advantages divides by n, as in `openai/baselines`; PyTorch's divides by n - 1.
  - An update in which one of TERMS is not finite is skipped and counted (`faults/skipped_updates`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Float32, Int, Int32, Num, PyTree, Shaped, UInt32

from moozi.acting.on_policy import IS_PAST, Rollout
from moozi.agent.finite import guarded_step, reduce_metrics
from moozi.agent.grad_clipping import clipping
from moozi.agent.update import TrainingState, UpdateOutput, repeat
from moozi.baselines.observations import NetState, normalized, observation_state, observed
from moozi.baselines.ppo.actor_critic import PPONetwork
from moozi.baselines.ppo.early_stop import repeat_until
from moozi.baselines.ppo.lstm import IS_FIRST, LSTM_STATE, Memory, sequence_indices
from moozi.baselines.ppo.reward_scaling import return_state, scaled_rewards
from moozi.core.config.ppo import PPOConfig
from moozi.core.pytree import record, replace
from moozi.core.spec import EnvSpec
from moozi.core.types import AnyArray
from moozi.ops.actions import Groups
from moozi.ops.gaussian import gaussian_log_prob
from moozi.ops.history import init_history
from moozi.ops.policy import log_prob_of

Scalars = dict[str, Float[Array, ""]]

# Scalars of an update that must be finite, in the order in which they are checked.
TERMS = (
  "loss/policy",
  "loss/value",
  "loss/entropy",
  "loss/total",
  "update/grad_norm",
  "update/update_norm",
)


@record
class PPOBatch:
  """The N samples of a segment or of a minibatch. Fields that are not listed here are as in Rollout.

  Attributes:
    action: as it was drawn; a continuous one before it was clipped.
    log_prob: log probability of the action under the policy that acted; 0 where `is_live` is false.
    advantage: the result of `generalized_advantages`.
    target: the value target, advantage + value, which Huang et al. call the return.
    is_live: false on a last frame, and where a past self moved.
    memory: with an LSTM, what the sequences need besides their samples.
  """

  frames: Shaped[AnyArray, "N L H W C"]
  legal_actions_mask: Bool[AnyArray, "N A"]
  action: Num[AnyArray, "N *D"]
  log_prob: Float32[AnyArray, "N"]
  value: Float32[AnyArray, "N"]
  advantage: Float32[AnyArray, "N"]
  target: Float32[AnyArray, "N"]
  is_live: Bool[AnyArray, "N"]
  memory: Memory | None = None


def generalized_advantages(
  segment: Rollout, config: PPOConfig, discount: Float[AnyArray, ""] | float | None = None
) -> Float[Array, "T B"]:
  """Computes generalized advantage estimates.

    A_t = δ_t + γλ·s·[t + 1 is not last]·A_{t+1}, with δ_t = r_{t+1} + γ·s·[t + 1 has a value]·V_{t+1} - V_t.

  s is 1 if the same player moves at t and t + 1, else -1; values and advantages are those of the player to
  move. A terminal frame has no value. A truncated frame has a value only with `bootstrap_truncated`; the
  source gives it no value. Every other frame has a value, also the one after the segment.

  Args:
    config: `discount`, `gae_lambda`, `bootstrap_truncated` and `clip_rewards` are read.
    discount: γ in place of `config.discount`.

  Returns: the advantages; 0 on last frames.
  Source: Schulman et al. 2016, eq. 16; Huang et al. 2022, core detail 5. Departure: the sign, for self-play.
  """
  has_value = segment.sign * (~segment.is_last | (segment.is_truncated & config.bootstrap_truncated))
  reward = jnp.sign(segment.reward) if config.clip_rewards else segment.reward
  gamma = config.discount if discount is None else discount
  delta = reward + gamma * has_value * segment.value[1:] - segment.value[:-1]
  carried = gamma * config.gae_lambda * segment.sign * ~segment.is_last

  def step(advantage: Float[Array, "B"], row: Any) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
    advantage = row[0] + row[1] * advantage
    return advantage, advantage

  _, out = jax.lax.scan(step, jnp.zeros_like(delta[0]), (delta, carried), reverse=True)
  return jnp.where(segment.is_live, out, 0.0)


def make_batch(
  segment: Rollout,
  config: PPOConfig,
  groups: Groups | None = None,
  discount: Float[AnyArray, ""] | float | None = None,
) -> tuple[PPOBatch, Scalars]:
  """Returns the N = T·B samples of a segment, and scalars about them in units of the learned rewards.

  Advantages are computed over all steps. Samples of steps at which a past self moved are not live.
  `ppo/explained_variance` is 1 - Var[target - value] / Var[target], or 0 if all targets are equal.
  """
  advantage = generalized_advantages(segment, config, discount)
  value = segment.value[:-1]

  def flat(x: Any) -> Any:
    return x.reshape(-1, *x.shape[2:])

  action, is_live, extras = flat(segment.action), flat(segment.is_live), segment.extras
  if IS_PAST in extras:
    is_live = is_live & ~flat(extras[IS_PAST])
  if "drawn" in extras:
    action = flat(extras["drawn"])

  def log_prob() -> Float[Array, "N"]:
    if "drawn" in extras:
      return gaussian_log_prob(flat(extras["gaussian"]), action)
    return log_prob_of(flat(extras["log_probs"]), action, groups)

  batch = PPOBatch(
    frames=flat(segment.frames),
    legal_actions_mask=flat(segment.legal_actions_mask),
    action=action,
    log_prob=jnp.where(is_live, log_prob(), 0.0),
    value=flat(value),
    advantage=flat(advantage),
    target=flat(advantage + value),
    is_live=is_live,
    memory=_memory_of(segment),
  )
  variance = masked_variance(batch.target, batch.is_live)
  unexplained = masked_variance(batch.target - batch.value, batch.is_live)
  return batch, {
    "ppo/explained_variance": jnp.where(variance > 0, 1.0 - unexplained / jnp.maximum(variance, 1e-12), 0.0),
    "ppo/value_mean": masked_mean(batch.value, batch.is_live),
    "ppo/target_mean": masked_mean(batch.target, batch.is_live),
    "ppo/live_share": jnp.mean(batch.is_live.astype(jnp.float32)),
  }


def _memory_of(segment: Rollout) -> Memory | None:
  if LSTM_STATE not in segment.extras:
    return None
  return Memory(state=segment.extras[LSTM_STATE][0], is_first=segment.extras[IS_FIRST].reshape(-1))


def masked_mean(x: Shaped[AnyArray, "N"], mask: Bool[AnyArray, "N"]) -> Float[Array, ""]:
  """Returns the mean over the entries where the mask is true; 0 if there are none."""
  return jnp.sum(jnp.where(mask, x, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


def masked_variance(x: Float[AnyArray, "N"], mask: Bool[AnyArray, "N"]) -> Float[Array, ""]:
  """Returns the variance (divided by n) over the entries where the mask is true; 0 if there are none."""
  return masked_mean(jnp.square(x - masked_mean(x, mask)), mask)


def make_loss(network: PPONetwork, config: PPOConfig) -> Callable[..., tuple[Array, Scalars]]:
  """Returns loss(params, minibatch, clip_range=config.clip_range) -> (loss [], scalars).

  All means are over live samples. The scalars:
    loss/policy: the mean of -min(ratio·A, clip(ratio)·A).
    loss/value: half the mean squared error of the value; with `clip_value`, each error is the larger of the
      clipped and the unclipped error. With value_loss=huber, the mean Huber loss; with categorical, the mean
      cross-entropy.
    loss/entropy: the mean entropy of the policy, in nats.
    loss/total: loss/policy - entropy_coef · loss/entropy + value_coef · loss/value.
    ppo/clip_fraction: the share of ratios outside the clip range.
    ppo/approx_kl: the mean of (ratio - 1) - log ratio, an estimate of KL(old ‖ new) (Schulman 2020's k3).
    ppo/approx_kl_k1: the mean of -log ratio, an estimate with more variance (Huang et al. 2022).
    targets/clipped_values: with value_loss=categorical, the share of targets that the support clips.
  """

  def loss(
    params: PyTree, batch: PPOBatch, clip_range: float | Float[Array, ""] = config.clip_range
  ) -> tuple[Float[Array, ""], Scalars]:
    live = batch.is_live
    logits, head = _outputs(network, params, batch)
    policy = network.distribution(logits, batch.legal_actions_mask)
    log_ratio = jnp.where(live, network.log_prob(policy, batch.action) - batch.log_prob, 0.0)
    ratio = jnp.exp(log_ratio)
    advantage = batch.advantage
    if config.normalize_advantages:
      deviation = jnp.sqrt(masked_variance(advantage, live))
      advantage = (advantage - masked_mean(advantage, live)) / (deviation + 1e-8)
    clipped_ratio = jnp.clip(ratio, 1.0 - clip_range, 1.0 + clip_range)
    policy_loss = -masked_mean(jnp.minimum(ratio * advantage, clipped_ratio * advantage), live)
    value_loss = _value_loss(network, head, batch, config, clip_range)
    entropy = masked_mean(network.entropy(policy, batch.legal_actions_mask), live)
    total = policy_loss - config.entropy_coef * entropy + config.value_coef * value_loss
    clipped: Scalars = {}
    if network.transform is not None:
      clipped = {"targets/clipped_values": masked_mean(network.transform.is_clipped(batch.target), live)}
    return total, {
      **clipped,
      "loss/total": total,
      "loss/policy": policy_loss,
      "loss/value": value_loss,
      "loss/entropy": entropy,
      "ppo/clip_fraction": masked_mean(jnp.abs(ratio - 1.0) > clip_range, live),
      "ppo/approx_kl": masked_mean((ratio - 1.0) - log_ratio, live),
      "ppo/approx_kl_k1": masked_mean(-log_ratio, live),
    }

  return loss


def _outputs(network: PPONetwork, params: PyTree, batch: PPOBatch) -> tuple[Array, Array]:
  if network.unroll is None:
    return network.apply(params, batch.frames)
  assert batch.memory is not None, "the segment's decisions have no extras of an LSTM"
  logits, head, _ = network.unroll(params, batch.frames, batch.memory)
  return logits, head


def _value_loss(
  network: PPONetwork, head: Float[Array, "N *S"], batch: PPOBatch, config: PPOConfig, clip_range: Any
) -> Float[Array, ""]:
  if config.value_loss == "squared":
    return 0.5 * masked_mean(_value_errors(head, batch, config.clip_value, clip_range), batch.is_live)
  if network.transform is None:
    return masked_mean(optax.losses.huber_loss(head, batch.target), batch.is_live)
  errors = optax.losses.softmax_cross_entropy(head, network.transform.to_probs(batch.target))
  return masked_mean(errors, batch.is_live)


def _value_errors(
  value: Float[Array, "N"], batch: PPOBatch, clip_value: bool, clip_range: Any
) -> Float[AnyArray, "N"]:
  """Returns each value's squared error; with `clip_value`, the larger of the clipped and unclipped errors."""
  error = jnp.square(value - batch.target)
  if not clip_value:
    return error
  clipped = batch.value + jnp.clip(value - batch.value, -clip_range, clip_range)
  return jnp.maximum(error, jnp.square(clipped - batch.target))


def make_optimizer(config: PPOConfig) -> optax.GradientTransformation:
  """Builds the optimizer: `clipping`, then Adam's direction.

  `make_update` applies the learning rate.
  """
  # The state has one structure with and without max_grad_norm, so that a resumed run may change it.
  clip = clipping(config.max_grad_rms, config.max_grad_norm)
  return optax.chain(clip, optax.scale_by_adam(eps=config.adam_epsilon))


def init_state(
  network: PPONetwork, config: PPOConfig, spec: EnvSpec, rng_key: UInt32[Array, "2"]
) -> TrainingState:
  """Returns the initial state. It has no target parameters; its random key shuffles the samples."""
  init_key, rng_key = jax.random.split(rng_key)
  params = network.init(init_key, jnp.asarray(init_history(1, config.history_length, spec).frames))
  return TrainingState(
    params=params,
    target_params=None,
    net_state=observation_state(config.normalize_observations, spec) | return_state(config),
    opt_state=make_optimizer(config).init(params),
    learner_step=jnp.zeros((), jnp.int32),
    rng_key=rng_key,
  )


def learning_rate_at(config: PPOConfig, env_steps: int, max_env_steps: int, time_share: float = 0.0) -> float:
  """Returns the learning rate of the round that starts after `env_steps`.

  With annealing, the rate falls linearly over the rounds up to `max_env_steps`, and would be 0 in the round
  after the last one. With `anneal_by: progress` it is at most the share of the time that remains.

  Args:
    time_share: share of max_wall_s that has passed, from 0 to 1.
  """
  if not config.anneal_learning_rate:
    return config.learning_rate
  return config.learning_rate * _remaining(config, env_steps, max_env_steps, time_share)


def rates_at(
  config: PPOConfig, env_steps: int, max_env_steps: int, time_share: float = 0.0
) -> tuple[float, ...]:
  """Returns the learning rate of a round, and with `anneal_clip_range` also the clip range.

  The clip range falls as the learning rate does. Source: `ppo2` of `openai/baselines`, whose clip range may
  be a function of the remaining share of the run, in the policy loss and in the value loss.
  """
  rate = learning_rate_at(config, env_steps, max_env_steps, time_share)
  if not config.anneal_clip_range:
    return (rate,)
  return rate, config.clip_range * _remaining(config, env_steps, max_env_steps, time_share)


def _remaining(config: PPOConfig, env_steps: int, max_env_steps: int, time_share: float) -> float:
  """Returns the share of the run's rounds that are left before the round that starts after `env_steps`.

  With `anneal_by: progress`, returns the share of the time that is left, if it is smaller.
  """
  num_rounds = -(-max_env_steps // config.round_steps)
  rounds = max(0.0, 1.0 - (env_steps // config.round_steps) / num_rounds)
  return min(rounds, 1.0 - time_share) if config.anneal_by == "progress" else rounds


def minibatch_indices(rng_key: UInt32[Array, "2"], config: PPOConfig) -> Int32[Array, "U M"]:
  """Assigns samples to minibatches; each epoch shuffles all samples and splits them.

  Returns: U = num_epochs · num_minibatches rows of N / num_minibatches indices; with an LSTM, see
    `sequence_indices`.
  """
  if config.network.lstm_size:
    return sequence_indices(rng_key, config)
  keys = jax.random.split(rng_key, config.num_epochs)
  orders = jax.vmap(lambda key: jax.random.permutation(key, config.round_steps))(keys)
  return orders.reshape(config.num_epochs * config.num_minibatches, -1)


def minibatch(batch: PPOBatch, indices: Int[AnyArray, "M"]) -> PPOBatch:
  """Returns the samples with these indices, and with an LSTM the memory of their environments."""
  rows = jax.tree_util.tree_map(lambda x: x[indices], replace(batch, memory=None))
  return rows if batch.memory is None else replace(rows, memory=batch.memory.of_environments(indices))


def make_update(
  network: PPONetwork, config: PPOConfig
) -> Callable[..., tuple[TrainingState, Scalars, Int32[Array, ""]]]:
  """Returns update(state, batch, indices, *rates) -> (state, scalars, bad_term): one minibatch.

  `rates` are those of `rates_at`: the learning rate, and the clip range if it is annealed. The function is
  not jitted. The scalars are those of the loss and of `guarded_step`. `bad_term` is the index of the first of
  TERMS that is not finite, or -1 if all are finite. If a term is not finite, the update is skipped.
  """
  grad_fn = jax.value_and_grad(make_loss(network, config), has_aux=True)
  optimizer = make_optimizer(config)

  def update(
    state: TrainingState,
    batch: PPOBatch,
    indices: Int[AnyArray, "M"],
    learning_rate: Float[Array, ""],
    *clip_range: Float[Array, ""],
  ) -> tuple[TrainingState, Scalars, Int32[Array, ""]]:
    (_, metrics), grads = grad_fn(state.params, minibatch(batch, indices), *clip_range)
    rate = jnp.asarray(learning_rate, jnp.float32)
    params, opt_state, bad_term, metrics = guarded_step(optimizer, state, grads, rate, metrics, TERMS)
    learner_step = state.learner_step + 1
    return replace(state, params=params, opt_state=opt_state, learner_step=learner_step), metrics, bad_term

  return update


RoundFn = Callable[[TrainingState, tuple[Any, ...]], tuple[TrainingState, UpdateOutput]]


def make_round(network: PPONetwork, config: PPOConfig) -> RoundFn:
  """Returns round(state, (segment, *rates)) -> (state, UpdateOutput): all updates from one segment.

  `rates` are those of `rates_at`; with `discount_schedule`, γ comes before them. The function is compiled and
  donates the state. The statistics in `net_state` change once; the samples are normalized as when they were
  acted on. `reduce_metrics` makes the metrics; the source logs the scalars of the last minibatch, and the
  mean of the clip fraction. The output has no `value_error`.
  """
  update = make_update(network, config)

  def step(
    state: TrainingState, row: Int[AnyArray, "M"], batch: PPOBatch, *rates: Float[Array, ""]
  ) -> tuple[TrainingState, tuple[Scalars, Int32[Array, ""]]]:
    state, scalars, bad_term = update(state, batch, row, *rates)
    return state, (scalars, bad_term)

  def reduce(
    outputs: tuple[dict[str, Float[Array, "U"]], Int32[Array, "U"]],
  ) -> tuple[Scalars, Int32[Array, "U"]]:
    return reduce_metrics(outputs[0]), outputs[1]

  updates = repeat(step, reduce) if config.target_kl is None else repeat_until(step, reduce, config)

  @jax.jit
  def start(
    state: TrainingState, segment: Rollout, *discount: Float[AnyArray, ""]
  ) -> tuple[PPOBatch, Int32[Array, "U M"], UInt32[Array, "2"], NetState, Scalars]:
    gamma = discount[0] if discount else None
    rng_key, order_key = jax.random.split(state.rng_key)
    net_state, segment, scale = scaled_rewards(state.net_state, segment, config, gamma)
    batch, metrics = make_batch(segment, config, network.policy_groups, gamma)
    net_state = observed(net_state, batch.frames, batch.is_live)
    batch = replace(batch, frames=normalized(state.net_state, batch.frames, config.observation_clip))
    return batch, minibatch_indices(order_key, config), rng_key, net_state, metrics | scale

  def round_of(state: TrainingState, batch: tuple[Any, ...]) -> tuple[TrainingState, UpdateOutput]:
    segment, *rates = batch
    num_discounts = 1 if config.discount_schedule else 0
    discount, rates = rates[:num_discounts], rates[num_discounts:]
    samples, indices, rng_key, net_state, metrics = start(state, segment, *discount)
    state, (updated, bad_term) = updates(state, jax.device_get(indices), samples, *rates)
    output = UpdateOutput(metrics=metrics | updated, value_error=None, bad_term=bad_term)
    return replace(state, rng_key=rng_key, net_state=net_state), output

  return round_of
