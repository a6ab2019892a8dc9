"""Actors' accounts of their work, on one wall clock: seconds at work, and for a while each piece of it."""

import collections
import contextlib
import dataclasses
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping

from moozi.core.actor_report import (
  REANALYZE_WORKER,
  REPLAY,
  SERVER,
  TESTER,
  WORKER,
  ActorReport,
  Span,
  Stretch,
)
from moozi.core.config import Config

Clock = Callable[[], float]

# Of one actor between two reports: some seconds' worth, whatever it does.
_MOST_SPANS = 20_000


class WorkLog:
  """One actor's account of its work. Between two reports it keeps a bounded number of pieces, the newest.

  Args:
    keeps_spans: keep each piece of work.
    clock: seconds; `time.time`, which all processes of a machine share.
  """

  def __init__(self, keeps_spans: bool, clock: Clock = time.time) -> None:
    self._keeps_spans, self._clock = keeps_spans, clock
    self._now_s = clock()
    self._since_s = self._whole_since_s = self._now_s
    self._busy_s = 0.0
    self._spans: collections.deque[Span] = collections.deque()

  @contextlib.contextmanager
  def doing(self, name: str) -> Iterator[None]:
    """A piece of work, from here to the end of the `with`, however it ends. Pieces do not contain others."""
    start_s = self._tell_time()
    try:
      yield
    finally:
      end_s = self._tell_time()
      self._busy_s += end_s - start_s
      if self._keeps_spans:
        if len(self._spans) == _MOST_SPANS:
          self._whole_since_s = self._spans.popleft().end_s
        self._spans.append(Span(name, start_s, end_s))

  def report(self, keeps_spans: bool, memory_mib: float | None = None) -> ActorReport:
    """What was done since the last report; the next one begins here.

    Args:
      keeps_spans: go on keeping each piece, where they are kept now.
      memory_mib: of this process, to be told.
    """
    now_s = self._tell_time()
    stretch = None
    if self._keeps_spans:
      stretch = Stretch(since_s=self._whole_since_s, until_s=now_s, spans=tuple(self._spans))
    out = ActorReport(
      elapsed_s=now_s - self._since_s, busy_s=self._busy_s, memory_mib=memory_mib, stretch=stretch
    )
    self._since_s = self._whole_since_s = now_s
    self._busy_s = 0.0
    self._spans.clear()
    self._keeps_spans = self._keeps_spans and keeps_spans
    return out

  def _tell_time(self) -> float:
    # A wall clock may be set back: no piece of work ends before it began, or begins before the last one ends.
    self._now_s = max(self._now_s, self._clock())
    return self._now_s


class TimelineWindow:
  """Which part of a run's timeline is kept: some seconds after the first update.

  Args:
    seconds: how many; 0: none.
    clock: as WorkLog has it.
  """

  def __init__(self, seconds: float, clock: Clock = time.time) -> None:
    self._seconds, self._clock = seconds, clock
    self._since_s: float | None = None

  def begin(self) -> None:
    """The window begins now, where it has not begun yet."""
    if self._since_s is None:
      self._since_s = self._clock()

  @property
  def is_over(self) -> bool:
    """Whether what is done from now on is not kept."""
    if not self._seconds:
      return True
    return self._since_s is not None and self._clock() >= self._since_s + self._seconds

  def cut(self, report: ActorReport) -> ActorReport:
    """The report without the pieces of work outside the window."""
    stretch = report.stretch
    if stretch is not None:
      since_s = self._since_s
      stretch = None if since_s is None else stretch.within(since_s, since_s + self._seconds)
    return dataclasses.replace(report, stretch=stretch)


class LocalWork:
  """The accounts of all actors' work where one process does it, by the names that the actors have.

  Args:
    config: the run's configuration.
    clock: as WorkLog has it.
  """

  def __init__(self, config: Config, clock: Clock = time.time) -> None:
    self._window = TimelineWindow(config.timeline.seconds, clock)
    names = [SERVER, REPLAY, *(f"{WORKER}_{i}" for i in range(config.num_acting_workers))]
    names += [f"{REANALYZE_WORKER}_0"] if config.reanalyze.ratio else []
    self._logs = {name: WorkLog(not self._window.is_over, clock) for name in [*names, TESTER]}

  def doing(self, actor: str, name: str) -> contextlib.AbstractContextManager[None]:
    """A piece of an actor's work; see WorkLog."""
    return self._logs[actor].doing(name)

  def begin_window(self) -> None:
    """The timeline begins now, where it has not begun yet."""
    self._window.begin()

  def reports(self) -> dict[str, ActorReport]:
    """What each did since the last time."""
    keeps_spans = not self._window.is_over
    return {name: self._window.cut(log.report(keeps_spans)) for name, log in self._logs.items()}


class WorkFigures:
  """Metrics of the actors' work: busy shares since the last tick, and memory."""

  def __init__(self) -> None:
    self._busy_s: dict[str, float] = {}
    self._elapsed_s: dict[str, float] = {}
    self._memory_mib: dict[str, float] = {}

  def add(self, reports: Mapping[str, ActorReport]) -> None:
    """Takes reports by actor."""
    for actor, report in reports.items():
      self._busy_s[actor] = self._busy_s.get(actor, 0.0) + report.busy_s
      self._elapsed_s[actor] = self._elapsed_s.get(actor, 0.0) + report.elapsed_s
      if report.memory_mib is not None:
        self._memory_mib[actor] = report.memory_mib

  def take(self, driver_mib: float) -> dict[str, float]:
    """Scalars by name; the next shares begin here.

    An actor that has not reported, as in the midst of a long piece of work, has no share this time; its whole
    time is in the next one.

    Args:
      driver_mib: resident memory of this process.
    """
    out = {
      f"system/busy_share/{actor}": self._busy_s[actor] / elapsed_s
      for actor, elapsed_s in self._elapsed_s.items()
      if elapsed_s > 0
    }
    self._busy_s.clear()
    self._elapsed_s.clear()
    memory = {"driver": driver_mib} | self._memory_mib
    out |= {f"system/memory_mib/{name}": mib for name, mib in memory.items()}
    return out | {"system/memory_mib": sum(memory.values())}


def resident_mib() -> float:
  """Resident memory of this process; its largest so far where the system has no /proc."""
  try:
    with open("/proc/self/statm", encoding="ascii") as file:
      return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
  except OSError:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
