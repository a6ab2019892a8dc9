"""Requests calls of the reanalyze workers, and publishes the target network's parameters to them."""

import functools
from typing import Any

from moozi.actors import shard_calls
from moozi.actors.context import Context
from moozi.actors.ledger import Target
from moozi.core.actor_report import REANALYZE_WORKER, ActorId
from moozi.run.events import Event, Reanalyzed


def request(context: Context) -> None:
  """Requests calls up to the limits of pacing and `reanalyze.calls_in_flight`.

  The workers with the fewest calls in flight come first. Requests nothing before the first target network has
  arrived, and while replay cannot be sampled, for example after its restart.
  """
  ledger, target = context.ledger, context.ledger.target
  if target is None or not ledger.shards.can_sample:
    return
  max_in_flight = context.config.reanalyze.calls_in_flight
  for index in sorted(context.pool.reanalyze_workers, key=ledger.searches_in_flight.__getitem__):
    while ledger.searches_in_flight[index] < max_in_flight and ledger.pacer.may_reanalyze():
      _request(context, index, target)


def publish_if_copied(context: Context) -> None:
  """Publishes the target network after an update that copied the parameters to it.

  With `learner.target_decay`, every update changes it; it is then published as often as the parameters.
  """
  ledger, learner = context.ledger, context.config.learner
  # In the first period, every update copies the parameters to the target network.
  is_first_period = not learner.target_decay and ledger.learner_steps < learner.target_update_period
  if ledger.target_copies.is_due(ledger.learner_steps) or is_first_period:
    publish(context)


def publish(context: Context) -> None:
  """Publishes the target network's parameters as one object, which all reanalyze workers read."""
  if context.pool.reanalyze_workers:
    reference = context.pool.server.parameters.remote("target")
    # Not a result of the server's work, because a restarted server answers it before it has made an update.
    context.calls.expect(reference, None, functools.partial(_on_published, context, reference))


def _on_published(context: Context, reference: Any, parameters: tuple[Any, int]) -> list[Event]:
  context.ledger.target = Target(reference, parameters[1])
  return []


def _request(context: Context, index: int, target: Target) -> None:
  context.ledger.begin_search(index)
  shard = context.ledger.shards.choose()
  replay, worker = context.pool.shards[shard], context.pool.reanalyze_workers[index]
  positions = replay.positions.remote(target.version)
  searched, summary = worker.run.options(num_returns=2).remote(target.parameters, positions)

  def on_failure(_: Any) -> list[Event]:
    context.ledger.drop_search(index)
    return []

  on_result = functools.partial(_on_searched, context, index, searched, shard, replay)
  context.calls.expect(summary, ActorId(REANALYZE_WORKER, index), on_result, on_failure)


def _on_searched(
  context: Context,
  index: int,
  searched: Any,
  shard: int,
  replay: Any,
  summary: tuple[int, dict[str, float]],
) -> list[Event]:
  num_positions, metrics = summary
  if not num_positions:
    context.ledger.waive_search(index)
    return []
  if replay is context.pool.shards[shard]:
    # In a restarted shard, the same slots and sequence numbers may refer to other steps.
    shard_calls.expect_report(context, shard, replay, replay.write_back.remote(searched))
  context.ledger.finish_search(index, num_positions)
  ratio = context.ledger.pacer.reanalyze_ratio
  return [Reanalyzed(**context.counters(), metrics=metrics, num_positions=num_positions, ratio=ratio)]
