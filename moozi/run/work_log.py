"""Logs the duration of actors' calls on one wall clock.

A log sums the busy seconds between two reports during the whole run. It keeps single calls (spans) for a
limited time.
"""

import collections
import contextlib
import dataclasses
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from moozi.core.actor_report import (
  REANALYZE_WORKER,
  REPLAY,
  SERVER,
  TESTING_WORKER,
  WORKER,
  ActorReport,
  Span,
  Stretch,
)
from moozi.core.config import Config

Clock = Callable[[], float]

_MAX_SPANS = 20_000  # maximum number of spans of one actor between two reports


class WorkLog:
  """Logs one actor's calls. With `keeps_spans`, keeps at most the newest 20,000 spans between two reports.

  `clock` returns seconds. The default is `time.time`, which all processes of a machine share.
  """

  def __init__(self, keeps_spans: bool, clock: Clock = time.time) -> None:
    self._keeps_spans, self._clock = keeps_spans, clock
    self._now_s = clock()
    self._since_s = self._complete_since_s = self._now_s
    self._busy_s = 0.0
    self._spans: collections.deque[Span] = collections.deque()

  @contextlib.contextmanager
  def doing(self, name: str) -> Iterator[None]:
    """Logs the body of the `with` statement as one span, even if it raises. Spans must not nest."""
    start_s = self._read_clock()
    try:
      yield
    finally:
      end_s = self._read_clock()
      self._busy_s += end_s - start_s
      if self._keeps_spans:
        if len(self._spans) == _MAX_SPANS:
          self._complete_since_s = self._spans.popleft().end_s
        self._spans.append(Span(name, start_s, end_s))

  def report(self, keeps_spans: bool, memory_mib: float | None = None) -> ActorReport:
    """Returns a report of the calls since the previous report.

    If `keeps_spans` is false, the log keeps no spans from now on.
    """
    now_s = self._read_clock()
    stretch = None
    if self._keeps_spans:
      stretch = Stretch(since_s=self._complete_since_s, until_s=now_s, spans=tuple(self._spans))
    out = ActorReport(
      elapsed_s=now_s - self._since_s, busy_s=self._busy_s, memory_mib=memory_mib, stretch=stretch
    )
    self._since_s = self._complete_since_s = now_s
    self._busy_s = 0.0
    self._spans.clear()
    self._keeps_spans = self._keeps_spans and keeps_spans
    return out

  def _read_clock(self) -> float:
    # The returned time never decreases, even if the wall clock is set back. Spans therefore never have a
    # negative length or overlap.
    self._now_s = max(self._now_s, self._clock())
    return self._now_s


class TimelineWindow:
  """Limits a run's timeline to the first `seconds` after `begin`; 0 keeps nothing."""

  def __init__(self, seconds: float, clock: Clock = time.time) -> None:
    self._seconds, self._clock = seconds, clock
    self._since_s: float | None = None

  def begin(self) -> None:
    """Starts the window; does nothing if it has started."""
    if self._since_s is None:
      self._since_s = self._clock()

  @property
  def is_over(self) -> bool:
    """Whether the window has ended, so that later calls are outside it."""
    if not self._seconds:
      return True
    return self._since_s is not None and self._clock() >= self._since_s + self._seconds

  def cut(self, report: ActorReport) -> ActorReport:
    """Returns a copy of the report without the spans outside the window."""
    stretch, since_s = report.stretch, self._since_s
    if stretch is not None:
      stretch = None if since_s is None else stretch.within(since_s, since_s + self._seconds)
    return dataclasses.replace(report, stretch=stretch)


class LocalWork:
  """The logs of a run of `run.local`: one for each actor whose work the process does."""

  def __init__(self, config: Config, clock: Clock = time.time) -> None:
    self._window = TimelineWindow(config.timeline.seconds, clock)
    names = [SERVER, REPLAY, *(f"{WORKER}_{i}" for i in range(config.num_acting_workers))]
    names += [f"{REANALYZE_WORKER}_0"] if config.reanalyze.ratio else []
    self._logs = {name: WorkLog(not self._window.is_over, clock) for name in [*names, TESTING_WORKER]}
    self.begin_window = self._window.begin

  def doing(self, actor: str, name: str) -> contextlib.AbstractContextManager[None]:
    """Logs the body of the `with` statement as a span of `actor`."""
    return self._logs[actor].doing(name)

  def reports(self) -> dict[str, ActorReport]:
    """Returns reports of the work since the previous call, by actor."""
    keeps_spans = not self._window.is_over
    return {name: self._window.cut(log.report(keeps_spans)) for name, log in self._logs.items()}


class WorkFigures:
  """Computes metrics from the actors' reports: the busy share since the last `take`, and memory."""

  def __init__(self) -> None:
    self._busy_s: dict[str, float] = collections.defaultdict(float)
    self._elapsed_s: dict[str, float] = collections.defaultdict(float)
    self._memory_mib: dict[str, float] = {}

  def add(self, reports: Mapping[str, ActorReport]) -> None:
    """Adds reports by actor."""
    for actor, report in reports.items():
      self._busy_s[actor] += report.busy_s
      self._elapsed_s[actor] += report.elapsed_s
      if report.memory_mib is not None:
        self._memory_mib[actor] = report.memory_mib

  def take(self, driver_mib: float) -> dict[str, float]:
    """Returns the metrics by name, and resets the busy shares.

    An actor that has not reported, because a long call is in progress, has no share. Its next share covers
    that time.

    Args:
      driver_mib: resident memory of this process in MiB.
    """
    elapsed = {actor: seconds for actor, seconds in self._elapsed_s.items() if seconds > 0}
    out = {f"system/busy_share/{actor}": self._busy_s[actor] / s for actor, s in elapsed.items()}
    self._busy_s.clear()
    self._elapsed_s.clear()
    memory = {"driver": driver_mib} | self._memory_mib
    out |= {f"system/memory_mib/{name}": mib for name, mib in memory.items()}
    return out | {"system/memory_mib": sum(memory.values())}


def resident_mib() -> float:
  """Returns the resident memory of this process in MiB; on systems without /proc, its peak."""
  try:
    with open("/proc/self/statm", encoding="ascii") as file:
      return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
  except OSError:
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, other systems KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
