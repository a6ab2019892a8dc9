"""Q-learning as pure functions: targets from replay, and updates of the table and of the network.

The target of a step is R + γ^h s max_a Q(o_{t+h}, a) with h = min(n, steps to the episode's end). R is the
discounted sum of the h rewards. s is 1 if the same player moves at t and t + h, else -1 (negamax). The
maximum is over legal actions; on a terminal frame it is 0. A network's Q in the target is that of the target
network. With `double`, the target network's Q of the online network's best action replaces the maximum.

Sources: Watkins & Dayan 1992; Mnih et al. 2015; van Hasselt et al. 2016. Departures:
  - The table learns from replay, as the network does, not once from each step in the order of play.
  - With n > 1 the return is not corrected for actions that are not greedy (as in Hessel et al. 2018).
  - With prioritized sampling, the table's updates have no importance weights, and the priority of a new step
    is that of |R|, not the largest one (Schaul et al. 2016).
  - The network is trained by the optimizer of `learner` with the Huber loss, instead of RMSProp with clipped
    errors. Rewards are not clipped.
  - Without `learner.target_decay`, the target network is the network itself during the first
    `learner.target_update_period` updates.
  - An update in which one of TERMS is not finite is skipped and counted (`faults/skipped_updates`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Float32, Int32, Int64, PyTree, Shaped, UInt32

from moozi.agent.devices import devices_of
from moozi.agent.finite import ALL_FINITE, guarded_step
from moozi.agent.micro_batches import in_micro_batches, whole
from moozi.agent.update import (
  TrainingState,
  UpdateOutput,
  in_compute_dtype,
  make_learning_rate,
  make_optimizer,
  next_target_params,
  reduce_output,
  repeat,
)
from moozi.baselines.observations import NetState, normalized, observation_state, observed
from moozi.baselines.q_learning.hash_table import QTable, cells_of, insert, keys_of, learn, put_back, take
from moozi.baselines.q_learning.values import QFunction, highest
from moozi.core.config import Config
from moozi.core.pytree import fields_of, record, replace
from moozi.core.spec import EnvSpec
from moozi.core.types import AnyArray
from moozi.replay.protocol import Replay

TERMS = ("loss/value", "update/grad_norm", "update/update_norm")
"""Metrics of the network's update that must be finite, in the order in which they are checked."""


QUpdateFn = Callable[..., tuple[TrainingState, UpdateOutput]]
"""As `agent.update.UpdateFn`, of a `QBatch`."""


@record
class QBatch:
  """Steps drawn from replay: B of them, or U batches of B.

  Attributes:
    frames: o_{t-L+1} … o_t.
    action: the action on frame t.
    reward: R, in environment units, for the player to move at t.
    legal_actions_mask, bootstrap, next_frames, next_legal_actions_mask, is_live: as in NStepTransition.
    importance_ratio, slot, sequence, acted_version, searched_version: as in TrainTarget.
  """

  frames: Shaped[AnyArray, "*U B L H W C"]
  legal_actions_mask: Bool[AnyArray, "*U B A"]
  action: Int32[AnyArray, "*U B"]
  reward: Float32[AnyArray, "*U B"]
  bootstrap: Float32[AnyArray, "*U B"]
  next_frames: Shaped[AnyArray, "*U B L H W C"]
  next_legal_actions_mask: Bool[AnyArray, "*U B A"]
  is_live: Bool[AnyArray, "*U B"]
  importance_ratio: Float32[AnyArray, "*U B"]
  slot: Int64[AnyArray, "*U B"]
  sequence: Int64[AnyArray, "*U B"]
  acted_version: Int32[AnyArray, "*U B"]
  searched_version: Int32[AnyArray, "*U B"]


def sample(replay: Replay, num_batches: int, batch_size: int) -> QBatch:
  """Draws U batches from replay, whose steps have a `root_value` of 0 (`algorithm.without_values`).

  Raises: ValueError: no step is eligible.
  """
  drawn = replay.sample_many(num_batches, batch_size)
  lead = drawn.slot.shape
  found = fields_of(replay.transitions(drawn.slot.reshape(-1)))
  found = {name: x.reshape(lead + x.shape[1:]) for name, x in found.items()}
  return QBatch(
    **found,
    frames=drawn.frames[:, :, : found["next_frames"].shape[2]],
    action=drawn.actions[:, :, 0],
    reward=drawn.n_step_returns[:, :, 0],  # without a bootstrap, because the root values are 0
    importance_ratio=drawn.importance_ratio,
    slot=drawn.slot,
    sequence=drawn.sequence,
    acted_version=drawn.acted_version,
    searched_version=drawn.searched_version,
  )


def init_state(
  q_function: QFunction, config: Config, spec: EnvSpec, rng_key: UInt32[Array, "2"]
) -> TrainingState:
  """Returns the initial state. For a table, it has no target parameters and no optimizer state."""
  init_key, rng_key = jax.random.split(rng_key)
  params = q_function.init(init_key)
  is_table = config.q_learning.kind == "table"
  return TrainingState(
    params=params,
    target_params=None if is_table else jax.tree_util.tree_map(jnp.copy, params),
    net_state=observation_state(config.q_learning.normalize_observations, spec),
    opt_state={} if is_table else make_optimizer(config.learner).init(params),
    learner_step=jnp.zeros((), jnp.int32),
    rng_key=rng_key,
  )


def make_update(q_function: QFunction, config: Config) -> QUpdateFn:
  """Returns the pure function of one update, not jitted: (state, batch [B]) → (state, UpdateOutput).

  A network's update takes `time_share` as MuZero's does (`agent.update.make_update`).
  """
  return _table_update(config) if config.q_learning.kind == "table" else _network_update(q_function, config)


def make_update_many(q_function: QFunction, config: Config) -> QUpdateFn:
  """Returns a compiled function of U sequential updates: (state, batch [U, B]) → (state, UpdateOutput)."""
  return repeat(make_update(q_function, config), reduce_output, devices_of(config.learner))


def _table_update(config: Config) -> QUpdateFn:
  """Returns the update of a table. It learns the steps of a batch in order; each sees the earlier changes."""
  step_size = config.q_learning.step_size

  def step(table: QTable, row: Any) -> tuple[QTable, Any]:
    entry, next_entry, action, reward, bootstrap, next_legal = row
    _, value = highest(table.values[next_entry][None], next_legal[None])
    target = reward + bootstrap * value[0]
    table, error = learn(table, entry, action, target, step_size)
    return table, (error, target)

  def update(state: TrainingState, batch: QBatch) -> tuple[TrainingState, UpdateOutput]:
    keys = keys_of(batch.frames, batch.legal_actions_mask)
    table = insert(state.params, keys, batch.is_live)
    cells, size, no_cell = cells_of(table, keys), len(keys), len(table.keys)
    next_cells = cells_of(table, keys_of(batch.next_frames, batch.next_legal_actions_mask))
    both = jnp.concatenate([cells, next_cells])
    taken, index = take(table, both)
    # An index beyond the end changes nothing.
    changed = jnp.where(batch.is_live & (cells != no_cell), index[:size], len(both))
    rows = (changed, index[size:], batch.action, batch.reward, batch.bootstrap, batch.next_legal_actions_mask)
    taken, (error, target) = jax.lax.scan(step, taken, rows)
    table = put_back(table, both, taken, index)
    metrics = _metrics(batch, error, target, 0.5 * jnp.square(error)) | {
      "q_learning/table_fill": jnp.mean(table.keys[:, 1] != 0),
      "q_learning/table_lost_share": jnp.mean(batch.is_live & (cells == no_cell)),
      "faults/skipped_updates": jnp.zeros(()),
    }
    state = replace(state, params=table, learner_step=state.learner_step + 1)
    bad_term = jnp.full((), ALL_FINITE, jnp.int32)
    return state, UpdateOutput(metrics=metrics, value_error=_priorities(batch, error), bad_term=bad_term)

  return update


def make_loss(
  q_function: QFunction, config: Config
) -> Callable[[PyTree, PyTree, QBatch], tuple[Array, tuple[Array, dict[str, Array]]]]:
  """Returns loss(params, target_params, batch) -> (loss [], (errors [B], metrics)).

  The loss is the mean over live steps of ρ · huber(target - Q). The target's gradient is stopped. With
  `double`, the online network chooses the next action and the target network evaluates it.
  """
  options = config.q_learning

  def loss(
    params: PyTree, target_params: PyTree, batch: QBatch
  ) -> tuple[Float[Array, ""], tuple[Float[Array, "B"], dict[str, Array]]]:
    mask = batch.next_legal_actions_mask
    next_values = q_function.apply(target_params, batch.next_frames, mask)
    choosing = q_function.apply(params, batch.next_frames, mask) if options.double else next_values
    best, _ = highest(choosing, mask)
    bootstrap = batch.bootstrap * _chosen(next_values, best)
    target = jax.lax.stop_gradient(batch.reward + bootstrap)
    values = q_function.apply(params, batch.frames, batch.legal_actions_mask)
    error = target - _chosen(values, batch.action)
    losses = batch.importance_ratio * optax.losses.huber_loss(error, delta=options.huber_delta)
    metrics = _metrics(batch, error, target, losses)
    return metrics["loss/value"], (error, metrics)

  return loss


def _network_update(q_function: QFunction, config: Config) -> QUpdateFn:
  learner = config.learner
  if learner.accumulate > 1:
    q_function = _with_micro_batches(q_function, learner.accumulate)
  grad_fn = jax.value_and_grad(make_loss(q_function, config), has_aux=True)
  optimizer = make_optimizer(learner)
  learning_rate = make_learning_rate(learner.learning_rate, config.decay_steps)

  def update(
    state: TrainingState, batch: QBatch, *time_share: Float32[Array, ""]
  ) -> tuple[TrainingState, UpdateOutput]:
    net_state = observed(state.net_state, batch.frames, batch.is_live)
    batch = _normalized(state.net_state, batch)
    (_, (error, metrics)), grads = grad_fn(state.params, state.target_params, batch)
    rate = jnp.asarray(learning_rate(state.learner_step, *time_share), jnp.float32)
    params, opt_state, bad_term, metrics = guarded_step(optimizer, state, grads, rate, metrics, TERMS)
    step = state.learner_step + 1
    target_params = next_target_params(learner, state.target_params, params, step)
    state = TrainingState(
      params=params,
      target_params=target_params,
      net_state=net_state,
      opt_state=opt_state,
      learner_step=step,
      rng_key=state.rng_key,
    )
    return state, UpdateOutput(metrics=metrics, value_error=_priorities(batch, error), bad_term=bad_term)

  return in_compute_dtype(update, learner)


def _with_micro_batches(q_function: QFunction, num: int) -> QFunction:
  """Returns Q for training, which computes each batch in `num` micro-batches."""

  def apply(params: PyTree, frames: AnyArray, legal: AnyArray) -> Array:
    parts = in_micro_batches(lambda *rows: q_function.apply(params, *rows), num, frames, legal)
    joined: Array = whole(parts)
    return joined

  return QFunction(q_function.init, apply)


def _normalized(net_state: NetState, batch: QBatch) -> QBatch:
  """Returns the batch with frames as the network sees them, by the statistics before the update."""
  frames, next_frames = normalized(net_state, batch.frames), normalized(net_state, batch.next_frames)
  return replace(batch, frames=frames, next_frames=next_frames)


def _priorities(batch: QBatch, error: Float[Array, "B"]) -> Float[Array, "B"]:
  """Returns the absolute errors; 0 on an episode's last frame, from which nothing is learned."""
  return jnp.where(batch.is_live, jnp.abs(error), 0.0)


def _chosen(values: Float[Array, "B A"], action: Int32[AnyArray, "B"]) -> Float[Array, "B"]:
  return jnp.take_along_axis(values, jnp.asarray(action)[:, None], axis=-1)[:, 0]


def _metrics(
  batch: QBatch, error: Float[Array, "B"], target: Float[Array, "B"], losses: Float[Array, "B"]
) -> dict[str, Float[Array, ""]]:
  """Returns means over the live steps, the share of live steps, and the largest importance ratio."""
  num_live = jnp.maximum(jnp.sum(batch.is_live), 1)

  def mean(x: Float[Array, "B"]) -> Float[Array, ""]:
    return jnp.sum(jnp.where(batch.is_live, x, 0.0)) / num_live

  return {
    "loss/value": mean(losses),
    "loss/total": mean(losses),
    "q_learning/value_mean": mean(target - error),
    "q_learning/target_mean": mean(target),
    "q_learning/live_share": jnp.mean(batch.is_live),
    "importance_ratio/max": jnp.max(batch.importance_ratio),
  }
