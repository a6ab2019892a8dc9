"""Calls of replay's shards whose results are reports."""

from typing import Any

from moozi.actors.context import Context
from moozi.actors.roles import shard_actor
from moozi.actors.shard_ledger import ShardReport
from moozi.run.events import Event


def hear(context: Context, shard: int, replay: Any, report: ShardReport) -> None:
  """Takes the report of a shard's actor `replay`, unless the actor has been restarted since.

  The report does not say what the restarted actor can give.
  """
  if replay is context.pool.shards[shard]:
    context.ledger.shards.hear(shard, report)


def expect_report(context: Context, shard: int, replay: Any, reference: Any) -> None:
  """Registers a call of a shard's actor `replay` whose result is a report."""

  def on_report(report: ShardReport) -> list[Event]:
    hear(context, shard, replay, report)
    return []

  context.calls.expect(reference, shard_actor(context.config, shard), on_report)
