"""One step of learning: gradient, clipping, Adam, target network; a bad gradient is skipped."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from moozi.agent.loss import make_loss
from moozi.agent.skipping import SOUND, finite_mean, first_not_finite, select
from moozi.core.config import Config, LearnerConfig, LearningRateConfig
from moozi.core.pytree import map_fields, record
from moozi.core.records import TrainTarget
from moozi.core.spec import EnvSpec
from moozi.nn.model import Model, NetState, Params
from moozi.ops.history import init_history, normalize_frame, stack_history

Array = Any

# Metrics that must be finite, in the order in which they are looked at: what comes first is the cause of the
# rest.
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


@record
class TrainingState:
  """All that learning carries from one update to the next; a pytree of arrays.

  Attributes:
    params: the network's parameters.
    target_params: a copy, renewed every `target_update_period` learner steps (before the first, with each);
      reanalyze searches with it.
    net_state: averages of batch norm; else empty.
    opt_state: the optimizer's.
    learner_step: [] int32, batches taken, skipped ones too: it is the parameters' version, which never stands
      still while data is consumed.
    rng_key: [2] uint32; carried for what draws, the update itself draws nothing.
  """

  params: Params
  target_params: Params
  net_state: NetState
  opt_state: Any
  learner_step: Array
  rng_key: Array


@record
class UpdateOutput:
  """What comes out of an update, or of U of them.

  Attributes:
    metrics: scalars by name.
    value_error: [B] or [U, B] float32, for the priorities. A row that is not finite stays so: replay refuses
      it and keeps the priority it had.
    bad_term: [] or [U] int32, which of TERMS was not finite, the first of them; -1 where none was. The update
      was skipped then.
  """

  metrics: dict[str, Array]
  value_error: Array
  bad_term: Array


UpdateFn = Callable[[TrainingState, TrainTarget], tuple[TrainingState, UpdateOutput]]


def make_learning_rate(config: LearningRateConfig) -> Callable[[Array], Array]:
  """Learning rate at a learner step: a linear warm-up to `peak`, then constant, cosine or linear to `end`."""
  if config.decay_steps is None:
    main = optax.constant_schedule(config.peak)
  elif config.kind == "cosine":
    main = optax.cosine_decay_schedule(config.peak, config.decay_steps, alpha=config.end / config.peak)
  elif config.kind == "linear":
    main = optax.linear_schedule(config.peak, config.end, config.decay_steps)
  else:
    main = optax.constant_schedule(config.peak)
  if config.warmup_steps == 0:
    return main
  warmup = optax.linear_schedule(0.0, config.peak, config.warmup_steps)
  # step s has done s updates: the first update of a warm-up is not wasted on a rate of 0
  return optax.join_schedules([lambda step: warmup(step + 1), main], [config.warmup_steps])


def make_optimizer(config: LearnerConfig) -> optax.GradientTransformation:
  """Clipping by the global norm, then Adam's direction, before the learning rate (`make_update` applies it).

  Weight decay (adamw) acts on matrices and kernels, not on biases and norms.
  """
  parts = [optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam()]
  if config.optimizer == "adamw" and config.weight_decay > 0:
    parts.append(
      optax.add_decayed_weights(
        config.weight_decay, mask=lambda params: jax.tree_util.tree_map(lambda p: p.ndim >= 2, params)
      )
    )
  return optax.chain(*parts)


def init_training_state(model: Model, config: Config, spec: EnvSpec, rng_key: Array) -> TrainingState:
  """A fresh state; `target_params` are a copy, so that the state's buffers can be donated."""
  init_key, rng_key = jax.random.split(rng_key)
  history = init_history(2, config.targets.history_length, spec)
  frames = normalize_frame(jnp.asarray(history.frames), spec.frame_dtype)
  params, net_state = model.init(
    init_key, stack_history(frames, jnp.asarray(history.actions), spec.num_actions)
  )
  return TrainingState(
    params=params,
    target_params=jax.tree_util.tree_map(jnp.copy, params),
    net_state=net_state,
    opt_state=make_optimizer(config.learner).init(params),
    learner_step=jnp.zeros((), jnp.int32),
    rng_key=rng_key,
  )


def make_update(model: Model, config: Config, spec: EnvSpec) -> UpdateFn:
  """The pure function of one update, not jitted: (state, target [B]) → (state, UpdateOutput).

  Where one of TERMS is not finite the update is skipped: params, net_state and opt_state stay as they were,
  to the bit, and `faults/skipped_updates` is 1. The learner step goes on all the same. The target network is
  copied when the learner step reaches a multiple of `target_update_period`, from parameters that are sound.
  Before the first multiple it goes along with every update: until then it would be an untrained network, and
  what reanalyze searches with that is worse than what acting stored.

  Source: the thesis 4.3.9. Departures: skipping (`optax.apply_if_finite` would apply the bad update after a
    number of them in a row); the target network before its first copy.
  """
  learner = config.learner
  grad_fn = jax.value_and_grad(make_loss(model, learner, config.targets, spec.frame_dtype), has_aux=True)
  optimizer = make_optimizer(learner)
  learning_rate = make_learning_rate(learner.learning_rate)

  def update(state: TrainingState, target: TrainTarget) -> tuple[TrainingState, UpdateOutput]:
    (_, aux), grads = grad_fn(state.params, state.target_params, state.net_state, target)
    grad_norm = optax.tree.norm(grads)
    rate = jnp.asarray(learning_rate(state.learner_step), jnp.float32)
    directions, opt_state = optimizer.update(grads, state.opt_state, state.params)
    updates = jax.tree_util.tree_map(lambda d: -rate * d, directions)
    update_norm = optax.tree.norm(updates)
    metrics = aux.metrics | {"update/grad_norm": grad_norm, "update/update_norm": update_norm}
    bad_term = first_not_finite(metrics, TERMS)
    is_good = bad_term == SOUND
    params = select(is_good, optax.apply_updates(state.params, updates), state.params)
    step = state.learner_step + 1
    is_copied = (step % learner.target_update_period == 0) | (step < learner.target_update_period)
    new_state = TrainingState(
      params=params,
      target_params=select(is_copied, params, state.target_params),
      net_state=select(is_good, aux.net_state, state.net_state),
      opt_state=select(is_good, opt_state, state.opt_state),
      learner_step=step,
      rng_key=state.rng_key,
    )
    metrics |= {
      "update/update_norm": jnp.where(is_good, update_norm, 0.0),
      "update/param_norm": optax.tree.norm(params),
      "update/learning_rate": rate,
      "faults/skipped_updates": 1.0 - is_good.astype(jnp.float32),
    }
    return new_state, UpdateOutput(metrics=metrics, value_error=aux.value_error, bad_term=bad_term)

  return update


def make_update_many(model: Model, config: Config, spec: EnvSpec) -> UpdateFn:
  """Updates one after another in one call: (state, target [U, B]) → (state, UpdateOutput).

  The output's value_error is [U, B], its bad_term [U].

  Compiled inside, do not jit it again; the state that is passed in is donated. Metrics are means over those
  of the U updates in which they are finite; `faults/skipped_updates` is a number of updates,
  `importance_ratio/max` the largest. On the CPU the updates are dispatched one by one: XLA runs the gradient
  of a convolution 30 times slower inside a loop of its own.
  """
  update = make_update(model, config, spec)
  if jax.default_backend() != "cpu":

    def scanned(state: TrainingState, targets: TrainTarget) -> tuple[TrainingState, UpdateOutput]:
      state, outputs = jax.lax.scan(update, state, targets)
      return state, _reduce(outputs)

    return jax.jit(scanned, donate_argnums=0)

  compiled = jax.jit(update, donate_argnums=0)
  reduce = jax.jit(lambda outputs: _reduce(jax.tree_util.tree_map(lambda *xs: jnp.stack(xs), *outputs)))

  def dispatched(state: TrainingState, targets: TrainTarget) -> tuple[TrainingState, UpdateOutput]:
    outputs = []
    for i in range(targets.actions.shape[0]):
      state, output = compiled(state, map_fields(lambda x, i=i: x[i], targets))
      outputs.append(output)
    return state, reduce(outputs)

  return dispatched


def _reduce(outputs: UpdateOutput) -> UpdateOutput:
  """The outputs of U updates, stacked, as one."""
  special: dict[str, Callable[[Array], Array]] = {
    "faults/skipped_updates": jnp.sum,
    "importance_ratio/max": jnp.max,
  }
  metrics = {name: special.get(name, finite_mean)(values) for name, values in outputs.metrics.items()}
  return UpdateOutput(metrics=metrics, value_error=outputs.value_error, bad_term=outputs.bad_term)
