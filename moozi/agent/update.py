"""One learner step: gradient, clipping, Adam, target network; non-finite updates are skipped."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Float32, Int32, PyTree, UInt32

from moozi.agent.devices import Devices, OneDevice, devices_of
from moozi.agent.finite import ALL_FINITE, guarded_step, reduce_metrics
from moozi.agent.grad_clipping import clipping
from moozi.agent.loss import extra_terms, make_extra_losses, make_loss
from moozi.agent.micro_batches import with_micro_batches
from moozi.core.config import Config, LearnerConfig, LearningRateConfig
from moozi.core.pytree import record, replace
from moozi.core.records import TrainTarget
from moozi.core.spec import EnvSpec
from moozi.nn.model import Model, NetState, Params
from moozi.nn.precision import layers_in_bfloat16
from moozi.ops.history import init_history, network_input

# Metrics that must be finite. They are checked in this order, because later ones depend on earlier ones.
TERMS = (
  "loss/policy",
  "loss/value",
  "loss/reward",
  "loss/consistency",
  "loss/l2",
  "loss/total",
  "update/grad_norm",
  "update/update_norm",
)

UNROLL_TERMS = ("loss/reward", "loss/consistency")
"""Terms that exist only if K > 0."""

CHANCE_TERMS = ("loss/afterstate_value", "loss/chance", "loss/commitment")
"""Additional terms of a model with chance nodes."""


def terms_of(config: Config) -> tuple[str, ...]:
  """Returns TERMS with those of chance nodes and the user's own losses inserted before `loss/total`.

  Without unrolled steps, the terms of rewards and consistency are left out.
  """
  terms = TERMS if config.targets.unroll_steps else [t for t in TERMS if t not in UNROLL_TERMS]
  at = terms.index("loss/total")
  chance = CHANCE_TERMS if config.chance.codes else ()
  return (*terms[:at], *chance, *extra_terms(config.learner), *terms[at:])


@record
class TrainingState:
  """The learner's state between updates.

  Attributes:
    params: the network's parameters.
    target_params: the parameters of the target network, with which reanalyze searches. They are copied from
      params when learner_step is a multiple of `target_update_period`, and at every step before the first
      multiple. With `target_decay`, they are an exponential moving average of params. None without a target
      network.
    net_state: the variables without a gradient: the averages of batch norm and of `network.center_frames`,
      statistics of observations, PPO's running returns, γ with a discount schedule, and the state of a user's
      network; empty without these.
    opt_state: the optimizer's state.
    learner_step: the version of the parameters. Each update adds 1, also if it is skipped because it is not
      finite. With Ray, a rollback and a restart of the parameter server add more, so that no version repeats.
    rng_key: a random key, which only PPO changes, in each round. Folded with the learner step it gives the
      key of an update's augmentation, so a resumed run augments as the uninterrupted run would.
  """

  params: Params
  target_params: Params
  net_state: NetState
  opt_state: PyTree
  learner_step: Int32[Array, ""]
  rng_key: UInt32[Array, "2"]

  @property
  def variables(self) -> tuple[Params, NetState]:
    """What acting needs: (params, net_state)."""
    return self.params, self.net_state


@record
class UpdateOutput:
  """The output of one update, or of U updates with a leading axis U.

  Attributes:
    value_error: see `LossAux`. Where it is not finite, replay keeps the old priority. None without replay.
    bad_term: index of the first term that is not finite (the update is then skipped), or ALL_FINITE. The
      terms are those of `terms_of`, or the TERMS of another algorithm.
  """

  metrics: dict[str, Float[Array, ""]]
  value_error: Float32[Array, "*U B"] | None
  bad_term: Int32[Array, "*U"]


UpdateFn = Callable[..., tuple[TrainingState, UpdateOutput]]
"""(state, target) → (state, UpdateOutput). With `takes_time_share`, `time_share` is a third argument."""


def make_learning_rate(
  config: LearningRateConfig, decay_steps: int | None
) -> Callable[..., Float[Array, ""]]:
  """Returns the function of the learner step, and optionally of `time_share`, that gives the learning rate.

  The rate rises linearly to `peak` in the first `warmup_steps`. Then it is constant, or falls to `end`
  linearly or as a cosine. `time_share` is the share of max_wall_s that has passed, from 0 to 1. With it, the
  decay is at the larger one of this share and of the share of `decay_steps` that has been made, and in the
  warm-up the rate is the lower one of both. With `time_share` 0 the rate is the same as without.

  Args:
    decay_steps: learner steps from `peak` to `end` (`Config.decay_steps`); None: the rate stays at `peak`.
  """
  if decay_steps is None:
    main = optax.constant_schedule(config.peak)
  elif config.kind == "cosine":
    main = optax.cosine_decay_schedule(config.peak, decay_steps, alpha=config.end / config.peak)
  elif config.kind == "linear":
    main = optax.linear_schedule(config.peak, config.end, decay_steps)
  else:
    main = optax.constant_schedule(config.peak)
  by_steps, begin = main, config.warmup_steps
  if begin:
    warmup = optax.linear_schedule(0.0, config.peak, begin)
    # step + 1, because the first update has step 0 and would otherwise have a rate of 0
    by_steps = optax.join_schedules([lambda step: warmup(step + 1), main], [begin])

  def rate(step: Any, *time_share: Any) -> Any:
    if not time_share or decay_steps is None:
      return by_steps(step)
    falling = main(jnp.maximum(step - begin, time_share[0] * decay_steps))
    return jnp.where(step < begin, jnp.minimum(warmup(step + 1), falling), falling) if begin else falling

  return rate


def make_optimizer(config: LearnerConfig) -> optax.GradientTransformation:
  """Returns the optimizer: `clipping`, then Adam. `guarded_step` applies the learning rate.

  Weight decay (adamw) applies to arrays of two or more axes, not to biases and the parameters of norms.

  Source: Kingma & Ba 2015; Loshchilov & Hutter 2019 (adamw). Departures: gradients are clipped before Adam;
    weight decay is scaled by the whole learning rate, not only by its schedule, as in Optax.
  """
  parts = [clipping(config.max_grad_rms, config.max_grad_norm), optax.scale_by_adam()]
  if config.optimizer == "adamw" and config.weight_decay > 0:
    parts.append(
      optax.add_decayed_weights(
        config.weight_decay, mask=lambda params: jax.tree_util.tree_map(lambda p: p.ndim >= 2, params)
      )
    )
  return optax.chain(*parts)


def init_training_state(
  model: Model, config: Config, spec: EnvSpec, rng_key: UInt32[Array, "2"]
) -> TrainingState:
  """Makes the initial state. `target_params` is a copy, so the state's buffers can be donated."""
  init_key, rng_key = jax.random.split(rng_key)
  history = init_history(2, config.targets.history_length, spec)
  stacked = network_input(jnp.asarray(history.frames), jnp.asarray(history.actions), spec)
  params, net_state = model.init(init_key, stacked)
  return TrainingState(
    params=params,
    target_params=jax.tree_util.tree_map(jnp.copy, params),
    net_state=net_state,
    opt_state=make_optimizer(config.learner).init(params),
    learner_step=jnp.zeros((), jnp.int32),
    rng_key=rng_key,
  )


def make_update(model: Model, config: Config, spec: EnvSpec) -> UpdateFn:
  """Returns the pure function of one update, not jitted: (state, target [B]) → (state, UpdateOutput).

  With `takes_time_share`, `time_share` (float32 []) is a third argument, on which the learning rate depends.

  If one of `terms_of` is not finite, the update is skipped: params, net_state and opt_state stay the same to
  the bit, and the learner step still increases. `target_params` is copied when the learner step is a multiple
  of `target_update_period`. Before the first multiple, it is copied at each update. Without these copies it
  would stay the untrained network, and reanalyze would replace better targets with worse ones. With
  `target_decay`, `target_params` is a moving average instead (`average`).

  Source: thesis 4.3.9. Departures: every non-finite update is skipped (`optax.apply_if_finite` applies one
    after a number of consecutive skips); the target network is copied before the first multiple;
    optionally it is a moving average, as in BBF (Schwarzer et al. 2023).
  """
  learner = config.learner
  extra, terms = make_extra_losses(config, model), terms_of(config)
  if learner.accumulate > 1:
    model = with_micro_batches(model, learner.accumulate)
  loss = make_loss(model, learner, config.targets, spec.frame_dtype, extra, config.chance)
  grad_fn = jax.value_and_grad(loss, has_aux=True)
  optimizer = make_optimizer(learner)
  learning_rate = make_learning_rate(learner.learning_rate, config.decay_steps)

  def update(
    state: TrainingState, target: TrainTarget, *time_share: Float32[Array, ""]
  ) -> tuple[TrainingState, UpdateOutput]:
    variables = state.params, state.target_params, state.net_state
    key = jax.random.fold_in(state.rng_key, state.learner_step) if learner.augments else None
    (_, aux), grads = grad_fn(*variables, target, state.learner_step, key)
    rate = jnp.asarray(learning_rate(state.learner_step, *time_share), jnp.float32)
    params, opt_state, bad_term, metrics = guarded_step(optimizer, state, grads, rate, aux.metrics, terms)
    step = state.learner_step + 1
    target_params = next_target_params(learner, state.target_params, params, step)
    new_state = TrainingState(
      params=params,
      target_params=target_params,
      net_state=optax.tree.where(bad_term == ALL_FINITE, aux.net_state, state.net_state),
      opt_state=opt_state,
      learner_step=step,
      rng_key=state.rng_key,
    )
    return new_state, UpdateOutput(metrics=metrics, value_error=aux.value_error, bad_term=bad_term)

  return in_compute_dtype(update, learner)


def in_compute_dtype(update: Callable[..., Any], learner: LearnerConfig) -> Callable[..., Any]:
  """Returns an update whose dense and convolutional layers compute in `learner.compute_dtype`."""
  if learner.compute_dtype == "float32":
    return update

  def rounded(*arguments: Any) -> Any:
    with layers_in_bfloat16():
      return update(*arguments)

  return rounded


def next_target_params(
  learner: LearnerConfig, target_params: Params, params: Params, step: Int32[Array, ""]
) -> Params:
  """Returns the target network after an update whose result is `params`; see `make_update`.

  Args:
    step: the learner step after the update.
  """
  if learner.target_decay > 0:
    return average(target_params, params, learner.target_decay, step)
  is_copied = (step % learner.target_update_period == 0) | (step < learner.target_update_period)
  return optax.tree.where(is_copied, params, target_params)


def average(mean: Params, params: Params, decay: float, step: Int32[Array, ""]) -> Params:
  """Returns d · mean + (1 − d) · params with d = min(decay, (1 + step) / (10 + step)).

  With the smaller decay of the first steps, the weight of the untrained parameters soon becomes small.

  Source: Polyak & Juditsky 1992; the decay of the first steps as in TensorFlow's ExponentialMovingAverage.
    Departures: none.
  """
  d = jnp.minimum(jnp.float32(decay), (1.0 + step) / (10.0 + step))
  return jax.tree_util.tree_map(lambda m, p: m + (1.0 - d) * (p - m), mean, params)


def playing_state(state: Any, config: Config) -> Any:
  """Returns a checkpoint's state with the parameters of `evaluation.network` as its `params`.

  A state without target parameters is returned unchanged, such as that of PPO, of a table of Q-learning, or
  of an agent of the zoo, whose `params` already are those of `evaluation.network`.
  """
  target = getattr(state, "target_params", None)
  is_online = config.evaluation.network == "online" or target is None
  return state if is_online else replace(state, params=target)


def make_update_many(model: Model, config: Config, spec: EnvSpec) -> UpdateFn:
  """Returns a compiled function of U sequential updates: (state, target [U, B]) → (state, UpdateOutput).

  A third argument is as in `make_update`; it is the same for the U updates.

  Raises: UserError: as `devices_of`.
  """
  return repeat(make_update(model, config, spec), reduce_output, devices_of(config.learner))


def reduce_output(outputs: UpdateOutput) -> UpdateOutput:
  """Returns the output of U updates with the metrics reduced by `reduce_metrics`."""
  return replace(outputs, metrics=reduce_metrics(outputs.metrics))


def repeat(
  update: Callable[..., Any],
  reduce: Callable[[Any], Any],
  devices: Devices = OneDevice(),  # noqa: B008
) -> Callable[..., Any]:
  """Returns a function that makes one update for each row: (state, rows, *constants) → (state, result).

  `update` is (state, row, *constants) → (state, output). The result is `reduce` of the stacked outputs.
  Do not jit the function: it compiles its parts, and donates its state. On the CPU the updates are dispatched
  one by one, because XLA runs the gradient of a convolution more slowly in a scan (docs/decisions/0003).

  Args:
    devices: those that the state was put on. The arrays of a row are divided over them by the first axis.
  """
  if jax.default_backend() != "cpu":

    def scanned(state: Any, rows: PyTree, *constants: Any) -> tuple[Any, Any]:
      state, outputs = jax.lax.scan(lambda state, row: update(state, row, *constants), state, rows)
      return state, reduce(outputs)

    compiled = devices.compile(scanned)
    return lambda state, rows, *constants: compiled(state, devices.put_batch(rows, axis=1), *constants)

  one = devices.compile(update)
  join = jax.jit(lambda outputs: reduce(jax.tree_util.tree_map(lambda *xs: jnp.stack(xs), *outputs)))

  def dispatched(state: Any, rows: PyTree, *constants: Any) -> tuple[Any, Any]:
    outputs = []
    for i in range(len(jax.tree_util.tree_leaves(rows)[0])):
      row = jax.tree_util.tree_map(lambda x, i=i: x[i], rows)
      state, output = one(state, devices.put_batch(row), *constants)
      outputs.append(output)
    return state, join(outputs)

  return dispatched
