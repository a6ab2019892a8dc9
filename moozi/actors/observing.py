"""What the driver asks its actors of themselves: what they did, and how things are spread."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from moozi.actors.pool import ActorPool
from moozi.core.actor_report import REPLAY, SERVER, ActorReport
from moozi.core.config import Config
from moozi.core.histogram import Histogram
from moozi.run.events import ActorReports, Event, Histograms
from moozi.run.schedules import Every
from moozi.run.work_log import TimelineWindow

_LAST_TIMEOUT_S = 5.0


class Observing:
  """Asks now and then, and tells what came. Nothing in the run waits for an answer.

  So these calls are not among the driver's own: an actor that answers nothing else has not worked, one that
  died is found by its work, and a run that is to end does not wait for one in the midst of an evaluation.

  Args:
    ray: the module, connected.
    crew: the actors.
    config: the run's configuration.
    counters: what every event says.
    learner_steps: updates made before the first.
  """

  def __init__(
    self,
    ray: Any,
    pool: ActorPool,
    config: Config,
    counters: Callable[[], dict[str, Any]],
    learner_steps: int,
  ) -> None:
    self._ray, self._pool, self._counters = ray, pool, counters
    # So that there is an answer for each tick.
    self._period_s = config.logging.period_s / 2
    self._next_s = 0.0
    self._window = TimelineWindow(config.timeline.seconds)
    self._spreads = Every(config.logging.histogram_period, start=learner_steps)
    # References: of reports with the actors' names, and of histograms.
    self._reports: dict[Any, str] = {}
    self._histograms: set[Any] = set()

  def on_updated(self, learner_steps: int) -> None:
    """Updates were made."""
    self._window.begin()
    if self._spreads.is_due(learner_steps):
      handles = self._pool.handles()
      self._histograms |= {handles[name].histograms.remote() for name in (REPLAY, SERVER)}

  def poll(self) -> Iterator[Event]:
    """Tells what came and asks again, where it is time."""
    now_s = time.monotonic()
    if now_s >= self._next_s:
      self._next_s = now_s + self._period_s
      yield from self._tell(timeout_s=0.0)
      self._ask()

  def finish(self) -> Iterator[Event]:
    """Asks once more and waits a little, when everybody has done his work."""
    self._ask()
    yield from self._tell(_LAST_TIMEOUT_S)

  def _ask(self) -> None:
    """Asks everybody who owes no answer."""
    keeps_spans = not self._window.is_over
    owing = set(self._reports.values())
    for name, handle in self._pool.handles().items():
      if name not in owing:
        self._reports[handle.report.remote(keeps_spans)] = name

  def _tell(self, timeout_s: float) -> Iterator[Event]:
    references = [*self._reports, *self._histograms]
    if not references:
      return
    reports: dict[str, ActorReport] = {}
    histograms: dict[str, Histogram] = {}
    for reference in self._ray.wait(references, num_returns=len(references), timeout=timeout_s)[0]:
      name = self._reports.pop(reference, None)
      self._histograms.discard(reference)
      try:
        value = self._ray.get(reference)
      except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
        continue
      if name is None:
        histograms |= value
      else:
        reports[name] = self._window.cut(value)
    if reports:
      yield ActorReports(**self._counters(), reports=reports)
    if histograms:
      yield Histograms(**self._counters(), histograms=histograms)
