"""Tests of work logs, with a fake clock."""

import os

import numpy as np
import psutil
import pytest

from moozi.core.actor_report import ActorReport, Span, Stretch
from moozi.io.config import load_config
from moozi.run import work_log as work_module
from moozi.run.work_log import LocalWork, TimelineWindow, WorkFigures, WorkLog, resident_mib


class Clock:
  def __init__(self, now_s=1000.0):
    self.now_s = now_s

  def __call__(self):
    return self.now_s


def do(log, clock, name, seconds):
  with log.doing(name):
    clock.now_s += seconds


def test_report_has_spans_and_busy_seconds():
  clock = Clock()
  log = WorkLog(True, clock)
  clock.now_s = 1001
  do(log, clock, "update", 3)
  clock.now_s = 1006
  do(log, clock, "publish", 1)
  clock.now_s = 1010
  report = log.report(True, memory_mib=7.0)
  spans = (Span("update", 1001, 1004), Span("publish", 1006, 1007))
  assert report == ActorReport(
    elapsed_s=10, busy_s=4, memory_mib=7.0, stretch=Stretch(since_s=1000, until_s=1010, spans=spans)
  )
  clock.now_s = 1012
  assert log.report(True) == ActorReport(
    elapsed_s=2, busy_s=0, stretch=Stretch(since_s=1010, until_s=1012, spans=())
  )


def test_failed_call_is_logged():
  clock = Clock()
  log = WorkLog(True, clock)

  def fail():
    with log.doing("update"):
      clock.now_s += 2
      raise ValueError("broken")

  with pytest.raises(ValueError, match="broken"):
    fail()
  report = log.report(True)
  assert report.busy_s == 2
  assert report.stretch.spans == (Span("update", 1000, 1002),)


def test_spans_are_optional():
  clock = Clock()
  log = WorkLog(True, clock)
  do(log, clock, "a", 1)
  assert log.report(keeps_spans=False).stretch is not None
  do(log, clock, "b", 2)
  report = log.report(keeps_spans=True)
  assert (report.busy_s, report.stretch) == (2, None)
  never = WorkLog(False, clock)
  do(never, clock, "c", 3)
  assert (never.report(True).stretch, never.report(True).stretch) == (None, None)


def test_clock_set_back():
  clock = Clock()
  log = WorkLog(True, clock)
  do(log, clock, "a", 5)
  clock.now_s = 900
  do(log, clock, "b", 2)
  clock.now_s = 1003
  report = log.report(True)
  assert report.stretch.spans == (Span("a", 1000, 1005), Span("b", 1005, 1005))
  assert (report.elapsed_s, report.busy_s) == (5, 5)


def test_spans_are_bounded(monkeypatch):
  monkeypatch.setattr(work_module, "_MAX_SPANS", 3)
  clock = Clock(0)
  log = WorkLog(True, clock)
  for name in "abcde":
    do(log, clock, name, 1)
    clock.now_s += 1
  report = log.report(True)
  # Span b, which ended at 3, was dropped, so the report starts at 3.
  assert report.stretch == Stretch(
    since_s=3, until_s=10, spans=(Span("c", 4, 5), Span("d", 6, 7), Span("e", 8, 9))
  )
  assert (report.elapsed_s, report.busy_s) == (10, 5)


def test_timeline_window():
  clock = Clock()
  window = TimelineWindow(10, clock)
  whole = ActorReport(
    elapsed_s=100,
    busy_s=50,
    stretch=Stretch(since_s=950, until_s=1050, spans=(Span("a", 990, 1005), Span("b", 1010, 1040))),
  )
  clock.now_s = 1_000_000
  assert not window.is_over  # the window has not begun yet, however long the first update took
  assert window.cut(whole) == ActorReport(elapsed_s=100, busy_s=50)
  clock.now_s = 1003
  window.begin()
  clock.now_s = 1008
  window.begin()
  assert not window.is_over
  expected = Stretch(since_s=1003, until_s=1013, spans=(Span("a", 1003, 1005), Span("b", 1010, 1013)))
  assert window.cut(whole) == ActorReport(elapsed_s=100, busy_s=50, stretch=expected)
  clock.now_s = 1013
  assert window.is_over
  none = TimelineWindow(0, clock)
  assert none.is_over
  none.begin()
  assert none.cut(whole).stretch is None


def test_local_work():
  clock = Clock()
  work = LocalWork(load_config(None, ["workers.num_workers=2", "reanalyze.ratio=0.5"]), clock)
  work.begin_window()
  with work.doing("training_worker_1", "segment"):
    clock.now_s += 3
  clock.now_s += 1
  reports = work.reports()
  assert list(reports) == [
    *("parameter_server", "replay_buffer", "training_worker_0", "training_worker_1", "reanalyze_worker_0"),
    "testing_worker",
  ]
  assert {name: report.busy_s for name, report in reports.items() if report.busy_s} == {
    "training_worker_1": 3
  }
  assert {report.elapsed_s for report in reports.values()} == {4}
  assert {(r.stretch.since_s, r.stretch.until_s) for r in reports.values()} == {(1000, 1004)}
  assert [len(r.stretch.spans) for r in reports.values()] == [0, 0, 0, 1, 0, 0]
  nothing = LocalWork(load_config(None, ["timeline.seconds=0"]), clock).reports()
  assert {report.stretch for report in nothing.values()} == {None}


def test_work_figures():
  figures = WorkFigures()
  figures.add(
    {"a": ActorReport(elapsed_s=4, busy_s=1, memory_mib=10.0), "b": ActorReport(elapsed_s=4, busy_s=4)}
  )
  figures.add({"a": ActorReport(elapsed_s=1, busy_s=1, memory_mib=12.0)})
  assert figures.take(100.0) == {
    "system/busy_share/a": 0.4,
    "system/busy_share/b": 1.0,
    "system/memory_mib/driver": 100.0,
    "system/memory_mib/a": 12.0,
    "system/memory_mib": 112.0,
  }
  # Actor b is still in a call, so it has no busy share; its memory is the last value reported.
  figures.add({"b": ActorReport(elapsed_s=0, busy_s=0)})
  assert figures.take(50.0) == {
    "system/memory_mib/driver": 50.0,
    "system/memory_mib/a": 12.0,
    "system/memory_mib": 62.0,
  }


def test_resident_mib():
  block = np.ones(64 << 17)  # 64 MiB
  shown = resident_mib()
  assert block.nbytes / 2**20 == 64
  assert shown == pytest.approx(psutil.Process(os.getpid()).memory_info().rss / 2**20, rel=0.2)
  assert shown > 64
