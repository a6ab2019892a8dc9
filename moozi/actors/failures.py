"""Restarts actors that failed, and counts the work that was lost."""

import logging
from typing import Any

from moozi.actors import cluster, inference, shard_calls, updates
from moozi.actors.context import Context, RunContext
from moozi.actors.shard_ledger import ShardReport
from moozi.core.actor_report import INFERENCE_SERVER, REPLAY, SERVER, WORKER, ActorId
from moozi.core.errors import RunError
from moozi.run.events import Event, Faulted

_log = logging.getLogger("moozi.driver")


def on_error(context: RunContext, error: Any) -> list[Event]:
  """Restarts the actors that failed with this error and have not been restarted yet; returns the events.

  Raises: RunError: an actor failed more often in a row than `ray.max_restarts` allows, or as
    `ActorPool.restart`.
  """
  exceptions, pool = context.ray.exceptions, context.pool
  failed: list[ActorId] = []
  if isinstance(error, exceptions.OutOfMemoryError):
    failed = pool.find_failed()
  elif isinstance(error, exceptions.ActorDiedError) and (actor := pool.find(error)) is not None:
    failed = [actor]
  # The restart of one may remove another, and count it.
  return [restart(context, actor, error) for actor in failed if actor in pool.handles]


def restart(context: RunContext, actor: ActorId, error: Any) -> Event:
  """Restarts an actor that failed with this error, and returns the event. Raises: RunError: as `on_error`."""
  # The error of a constructor is not in the actor's log.
  cause = cluster.describe_failure(context.ray, error)
  _log.warning("%s: %s", actor, cause)
  outcome = context.pool.restart(actor, context.ledger.env_steps, context.ledger.next_free_version)
  if outcome is None:
    max_restarts = context.config.ray.max_restarts
    raise RunError(
      f"{actor} failed more than ray.max_restarts={max_restarts} times in a row: {cause}; "
      f"see logs/{actor}.log"
    ) from error
  counts = {actor.role: 1}
  if outcome.num_ended_workers:
    counts[WORKER] = outcome.num_ended_workers
  if actor.role == SERVER:
    # The restarted server has loaded the newest checkpoint, if there is one.
    counts["lost_updates"] = updates.rewind(context, outcome.start.learner_steps)
  elif actor.role == REPLAY and isinstance(context, Context):
    lost_steps = _shard_failed(context, actor.index or 0, outcome.start.num_added)
    counts |= {"lost_steps": lost_steps} if context.config.num_acting_workers else {}
  elif actor.role == INFERENCE_SERVER and actor.index is not None:
    # The workers ask their requests again, so no step is lost.
    inference.watch(context, actor.index)
    inference.pass_parameters(context)
  # A worker's calls in flight report its lost work.
  return Faulted(**context.counters(), counts=counts, message=outcome.message)


def _shard_failed(context: Context, shard: int, num_added: int) -> int:
  """Resets the environments of a shard's workers, because the restarted shard lacks their episodes.

  Returns: the number of steps lost.
  """
  ledger, pool, calls = context.ledger, context.pool, context.calls
  lost_steps = ledger.restart_replay(num_added, shard)
  for index in ledger.shards.workers(shard):
    if index in pool.workers:
      calls.expect(pool.workers[index].reset.remote(), ActorId(WORKER, index))
  replay = pool.shards[shard]

  def on_ready(value: tuple[ShardReport, str]) -> list[Event]:
    shard_calls.hear(context, shard, replay, value[0])
    return []

  # Not a result of its work, which would reset the count of failures.
  calls.expect(replay.ready.remote(), None, on_ready)
  return lost_steps
