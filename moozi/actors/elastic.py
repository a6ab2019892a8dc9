"""Starts training workers when a node has room, and drops those whose node is announced to leave.

A node that leaves without notice ends its actors; `failures` then restarts them. On-policy runs, whose rounds
need all workers, do not use this module.
"""

import time
from collections.abc import Iterator
from typing import Any

from moozi.actors import cluster, failures, segments
from moozi.actors.context import Context
from moozi.core.actor_report import WORKER, ActorId
from moozi.run.events import Event

# Time between two checks of the nodes of the cluster.
_PERIOD_S = 2.0


class ElasticWorkers:
  """Starts and drops training workers as nodes join and leave the cluster.

  Args:
    context: the run's context.
  """

  def __init__(self, context: Context) -> None:
    self._context = context
    self._has_nodes = context.config.ray.address not in (None, "local")
    self._next_s = 0.0
    # Whether hosts of the learner wait for room.
    self._is_learner_short = False

  def poll(self) -> Iterator[Event]:
    """Takes the workers that have started, and drops those that leave; checks the nodes every two seconds.

    Yields the events of workers that failed to start. Does nothing before `ActorPool.start_others`.
    """
    context, pool = self._context, self._context.pool
    if pool.testing_worker is None:
      return
    for actor, is_join, error in pool.take_started():
      if error is not None:
        yield failures.restart(context, actor, error)
        continue
      assert actor.index is not None
      segments.warm_up(context, actor.index)
      if is_join:
        self._note(f"{actor} joined")
    for index in sorted(pool.leaving):
      # The segments in flight are complete, so no step is lost.
      if not context.ledger.segments_in_flight[index]:
        self._drop(index)
    now_s = time.monotonic()
    if now_s >= self._next_s:
      self._next_s = now_s + _PERIOD_S
      self._follow_nodes()

  def _follow_nodes(self) -> None:
    ray, pool = self._context.ray, self._context.pool
    if self._has_nodes and (leaving := cluster.leaving_nodes(ray)):
      pool.leaving |= {index for index, x in pool.workers.items() if cluster.node_of(ray, x) in leaving}
    if self._has_nodes or pool.is_short:
      pool.fill(self._context.ledger.env_steps)
    if self._has_nodes:
      shortage, was_short = pool.host_shortage(), self._is_learner_short
      self._is_learner_short = shortage is not None
      if shortage is not None and not was_short:
        self._context.session.inputs.on_phase(shortage)

  def _drop(self, index: int) -> None:
    """Drops a training worker after its last segment; it closes its environments before it ends."""
    context = self._context
    handle = context.pool.drop(index)

    def on_closed(_: Any) -> list[Event]:
      context.ray.kill(handle)
      return []

    context.calls.expect(handle.close.remote(), None, on_closed)
    self._note(f"{ActorId(WORKER, index)} was dropped, because its node leaves the cluster")

  def _note(self, text: str) -> None:
    """Reports how many training workers run now, and why the number has changed."""
    num_workers = len(self._context.pool.workers)
    verb = "training worker runs" if num_workers == 1 else "training workers run"
    self._context.session.inputs.on_phase(f"{text}; {num_workers} {verb}")


def note_shortage(context: Context) -> None:
  """Reports if there is no room for some of `workers.num_workers`."""
  fitting, wanted = context.pool.num_fitting, context.config.num_acting_workers
  if fitting < wanted:
    context.session.phase(
      f"the cluster has room for {fitting} of {wanted} training workers; the others are started when it has "
      "room for them"
    )
