"""Requests reports and histograms from the actors.

These calls are not among the run's calls in flight. The run waits for them only before and after the final
evaluation, up to five seconds each time. A report does not reset an actor's failure count. The driver detects
a failed actor by the actor's other calls.
"""

import time
from collections.abc import Iterator
from typing import Any

from moozi.actors import cluster
from moozi.actors.context import RunContext
from moozi.core.actor_report import ActorId, ActorReport
from moozi.core.histogram import Histogram, merged
from moozi.run.events import ActorReports, Event, Histograms
from moozi.run.schedules import Every
from moozi.run.work_log import TimelineWindow

_LAST_TIMEOUT_S = 5.0


class Observing:
  """Requests reports from the actors twice per `logging.period_s`, and histograms when they are due.

  An actor whose last report has not arrived is left out.

  Args:
    context: the run's context.
  """

  def __init__(self, context: RunContext) -> None:
    self._context = context
    config = context.config
    # Half a period, so that every tick has a report.
    self._period_s = config.logging.period_s / 2
    self._next_s = 0.0
    self._window = TimelineWindow(config.timeline.seconds)
    self._first_step = context.ledger.learner_steps
    self._histograms_due = Every(config.logging.histogram_period, start=self._first_step)
    # References of pending reports, with their actors, and of pending histograms.
    self._reports: dict[Any, ActorId] = {}
    self._histograms: set[Any] = set()

  def poll(self) -> Iterator[Event]:
    """Requests reports and histograms when due; before it requests reports, yields what has arrived."""
    self._follow_updates()
    now_s = time.monotonic()
    if now_s >= self._next_s:
      self._next_s = now_s + self._period_s
      yield from self._arrived(timeout_s=0.0)
      self._request()

  def finish(self) -> Iterator[Event]:
    """Requests the last reports, waits up to five seconds for them, and yields what has arrived."""
    self._follow_updates()
    self._request()
    yield from self._arrived(_LAST_TIMEOUT_S)

  def _follow_updates(self) -> None:
    """Starts the timeline with the first update, and requests histograms if they are due."""
    learner_steps = self._context.ledger.learner_steps
    if learner_steps == self._first_step:
      return
    self._window.begin()
    # On-policy runs have no histograms, as in one process.
    if self._histograms_due.is_due(learner_steps) and not self._context.config.is_on_policy:
      pool = self._context.pool
      self._histograms |= {actor.histograms.remote() for actor in (*pool.shards.values(), pool.server)}

  def _request(self) -> None:
    """Requests a report from every actor without a pending one."""
    keeps_spans = not self._window.is_over
    pending = set(self._reports.values())
    for actor, handle in self._context.pool.handles.items():
      if actor not in pending:
        self._reports[handle.report.remote(keeps_spans)] = actor

  def _arrived(self, timeout_s: float) -> Iterator[Event]:
    references = [*self._reports, *self._histograms]
    if not references:
      return
    ray, counters = self._context.ray, self._context.counters
    reports: dict[str, ActorReport] = {}
    histograms: list[dict[str, Histogram]] = []
    for reference in ray.wait(references, num_returns=len(references), timeout=timeout_s)[0]:
      actor = self._reports.pop(reference, None)
      self._histograms.discard(reference)
      try:
        value = ray.get(reference)
      except cluster.lost_errors(ray):
        continue
      if actor is None:
        histograms.append(value)
      else:
        reports[str(actor)] = self._window.cut(value)
    if reports:
      yield ActorReports(**counters(), reports=reports)
    if histograms:
      yield Histograms(**counters(), histograms=merged(histograms))
