"""Learning: batches in flight at the parameter server, and the parameters that the workers act with."""

import functools
from typing import Any

from moozi.actors import inference, reanalyze_calls, shard_calls
from moozi.actors.context import Context, RunContext
from moozi.core.actor_report import REPLAY, SERVER, ActorId
from moozi.core.errors import NotFiniteError
from moozi.run.events import Event, Updated
from moozi.run.gate import Gate


def warm_up(context: Context) -> None:
  """Requests that the parameter server compile the update."""

  def on_result(_: Any) -> list[Event]:
    context.session.phase("compiled the update")
    return []

  context.session.phase("compiling the update")
  context.calls.expect(context.pool.server.warm_up.remote(), ActorId(SERVER), on_result)


def request(context: Context) -> None:
  """Requests updates up to the limits of pacing and `ray.batches_in_flight`."""
  ledger, pool = context.ledger, context.pool
  while ledger.may_learn:
    ledger.begin_updates()
    requests, discount = ledger.shards.plan(), ledger.discount
    shards = {shard: pool.shards[shard] for shard in requests}
    targets = [shards[shard].sample.remote(discount, request) for shard, request in requests.items()]
    share = context.session.time_share()
    priorities, metrics = pool.server.update.options(num_returns=2).remote(discount, share, *targets)
    epoch = ledger.parameter_epoch
    context.calls.expect(
      metrics,
      ActorId(SERVER),
      functools.partial(_on_updated, context, shards, priorities, epoch),
      functools.partial(_on_lost, context, epoch),
    )


def publish_now(context: RunContext) -> Any:
  """Sets the parameters for acting from now on, and returns their reference.

  They are the parameter server's; with a gate that has parameters, the gate's.
  """
  gate = context.ledger.gate
  if gate is None:
    reference = newest(context)
  elif gate.acting is None:
    reference = newest(context)
    _begin_gate(context, gate, reference)
  else:
    # The driver puts the object, because objects that another process puts are lost when it fails.
    reference = context.ray.put(gate.acting)
  _act_with(context, reference)
  return reference


def _begin_gate(context: RunContext, gate: Gate, first: Any) -> None:
  """Gives the gate the run's first parameters when they arrive.

  If they are lost with the parameter server, `rewind` requests them again.
  """

  def on_result(parameters: tuple[Any, int]) -> list[Event]:
    gate.begin(parameters)
    return []

  # Not a result of the server's work, which would reset its count of failures.
  context.calls.expect(first, None, on_result)


def _act_with(context: RunContext, parameters: Any) -> None:
  """Sets the parameters of the workers' next calls, and of the inference servers' next batches."""
  context.ledger.parameters = parameters
  inference.pass_parameters(context)


def newest(context: RunContext) -> Any:
  """Requests the parameter server's parameters of `workers.network`, and returns the reference."""
  return context.pool.server.parameters.remote(context.config.workers.network)


def rewind(context: RunContext, found: int) -> int:
  """Continues from the restored parameters of learner step `found`; returns the number of updates lost."""
  lost = context.ledger.rewind(found)
  if isinstance(context, Context):
    reanalyze_calls.publish(context)
  publish_now(context)
  return lost


def _on_updated(
  context: Context, shards: dict[int, Any], priorities: Any, epoch: int, metrics: dict[str, float]
) -> list[Event]:
  ledger, config = context.ledger, context.config
  if epoch != ledger.parameter_epoch:
    return _on_lost(context, epoch, None)
  if config.replay.refreshes_priorities:
    for shard, replay in shards.items():
      # In a restarted shard the same slots and sequence numbers may belong to other steps.
      if replay is context.pool.shards[shard]:
        shard_calls.expect_report(context, shard, replay, replay.update_priorities.remote(priorities))
  metrics = metrics | {"system/batches_in_flight": ledger.batches_in_flight}
  ledger.finish_updates()
  if ledger.publications.is_due(ledger.learner_steps):
    _publish(context)
    if not config.num_acting_workers:
      # Without segments, no other result contains replay's statistics.
      context.calls.expect(
        context.pool.shards[0].stats.remote(), ActorId(REPLAY), functools.partial(_on_stats, context)
      )
  reanalyze_calls.publish_if_copied(context)
  return [
    Updated(
      **context.counters(),
      metrics=metrics | ledger.shards.merged_stats(),
      num_samples=config.learner.batch_size * config.learner.updates_per_call,
      sample_reuse=ledger.pacer.sample_reuse,
    )
  ]


def _on_stats(context: Context, stats: dict[str, float]) -> list[Event]:
  context.ledger.shards.stats[0] = stats
  return []


def _publish(context: Context) -> None:
  """Publishes the newest parameters as one object, which all workers or all inference servers read.

  Does nothing with a gate, or while a publication is pending.
  """
  ledger = context.ledger
  if ledger.is_publishing or ledger.gate is not None:
    return
  ledger.is_publishing = True
  reference, epoch = newest(context), ledger.parameter_epoch

  def on_result(parameters: Any) -> list[Event]:
    ledger.is_publishing = False
    # Parameters published before a rollback must not replace the restored parameters.
    if epoch == ledger.parameter_epoch:
      _act_with(context, reference)
      if ledger.past is not None:
        ledger.past.offer(*parameters)
    return []

  def on_failure(_: Any) -> list[Event]:
    ledger.is_publishing = False
    return []

  context.calls.expect(reference, ActorId(SERVER), on_result, on_failure)


def _on_lost(context: Context, epoch: int, error: Any) -> list[Event]:
  context.ledger.drop_updates()
  # Only the first call that fails in an epoch causes a rollback; calls queued after it are lost or fail too.
  if isinstance(error, NotFiniteError) and epoch == context.ledger.parameter_epoch:
    return roll_back(context, error)
  return []


def roll_back(context: RunContext, error: NotFiniteError) -> list[Event]:
  """Restores the parameters of the last checkpoint, once per run or resume.

  Raises: NotFiniteError: as `Rollback.take`.
  """
  saved = context.session.rollback.take(error, context.ledger.next_free_version)
  context.pool.server.roll_back.remote(saved.training)
  lost_updates = rewind(context, saved.found)
  return [saved.fault(context.counters(), lost_updates)]
