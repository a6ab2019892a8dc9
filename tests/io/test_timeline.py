"""Tests of the timeline file and of its export for Perfetto."""

import json

import pytest

from moozi.core.actor_report import Span, Stretch, idle_share
from moozi.core.errors import UserError
from moozi.io.timeline import SPANS, TimelineFile, read_timeline, trace_of


def stretch(since_s, until_s, *spans):
  return Stretch(since_s=since_s, until_s=until_s, spans=tuple(Span(*span) for span in spans))


A = [
  stretch(1000.5, 1002.0, ("segment", 1000.5, 1001.25)),
  stretch(1002.0, 1004.0, ("segment", 1002.5, 1004.0)),
]
B = [stretch(1000.0, 1001.0, ("update", 1000.0, 1000.25)), stretch(1003.0, 1004.0)]


@pytest.fixture
def folder(tmp_path):
  file = TimelineFile(tmp_path / "timeline")
  file.add({"training_worker_0": A[0], "parameter_server": B[0], "testing_worker": None})
  file.add({"training_worker_0": A[1]})
  file.flush()
  file.add({"parameter_server": B[1]})
  file.close()
  return tmp_path / "timeline"


def test_round_trip(folder):
  timeline = read_timeline(folder)
  assert timeline == {
    "parameter_server": B,
    "training_worker_0": A,
  }
  assert list(timeline) == ["parameter_server", "training_worker_0"]


def test_empty_timeline_makes_no_folder(tmp_path):
  file = TimelineFile(tmp_path / "timeline")
  file.add({"a": None})
  file.flush()
  file.close()
  assert not (tmp_path / "timeline").exists()


def test_resumed_run_replaces_timeline(folder):
  file = TimelineFile(folder)
  file.flush()
  assert len(read_timeline(folder)) == 2
  file.add({"a": stretch(5000, 5001)})
  file.close()
  assert read_timeline(folder) == {"a": [stretch(5000, 5001)]}


def test_failed_flush_is_retried(tmp_path):
  (tmp_path / "timeline").write_text("in the way")
  file = TimelineFile(tmp_path / "timeline")
  file.add({"a": stretch(0, 1)})
  with pytest.raises(OSError, match="exists"):
    file.flush()
  (tmp_path / "timeline").unlink()
  file.add({"a": stretch(1, 2)})
  file.flush()
  file.close()
  assert read_timeline(tmp_path / "timeline") == {"a": [stretch(0, 1), stretch(1, 2)]}


def test_partial_last_line_is_skipped(folder):
  path = folder / SPANS
  path.write_text(path.read_text()[:-10])
  assert read_timeline(folder)["parameter_server"] == B[:1]


@pytest.mark.parametrize(
  "line",
  [
    "x",
    "[1]",
    '{"actor": "a"}',
    '{"actor": "a", "since_s": 2, "until_s": 1, "spans": []}',
    '{"actor": "a", "since_s": 0, "until_s": NaN, "spans": []}',
    '{"actor": "a", "since_s": 0, "until_s": true, "spans": []}',
    '{"actor": "a", "since_s": 0, "until_s": 9, "spans": [["x", 3, 2]]}',
    '{"actor": "a", "since_s": 0, "until_s": 9, "spans": [["x", 1, 3], ["y", 2, 4]]}',
    '{"actor": "a", "since_s": 0, "until_s": 9, "spans": [["x", 8, 10]]}',
    '{"actor": "a", "since_s": 0, "until_s": 9, "spans": [["x", 1]]}',
    '{"actor": "a", "since_s": 0, "until_s": 9, "spans": [["", 1, 2]]}',
    '{"actor": "\\u001b[31m", "since_s": 0, "until_s": 9, "spans": []}',
    '{"actor": 3, "since_s": 0, "until_s": 9, "spans": []}',
    f'{{"actor": "{"a" * 81}", "since_s": 0, "until_s": 9, "spans": []}}',
  ],
)
def test_invalid_line_raises(folder, line):
  with open(folder / SPANS, "a", encoding="utf-8") as file:
    file.write(line + "\n")
  with pytest.raises(UserError, match="line 5 is not valid"):
    read_timeline(folder)


def test_overlapping_lines_raise(folder):
  with open(folder / SPANS, "a", encoding="utf-8") as file:
    file.write(
      json.dumps({"actor": "parameter_server", "since_s": 1003.5, "until_s": 1005, "spans": []}) + "\n"
    )
  with pytest.raises(UserError, match="line 5 is not valid"):
    read_timeline(folder)


def test_trace(folder):
  timeline = read_timeline(folder)
  trace = json.loads(json.dumps(trace_of(timeline, "first"), allow_nan=False))
  named = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
  assert list(named.values()) == ["parameter_server", "training_worker_0"]
  events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
  assert [(named[e["tid"]], e["name"], e["ts"], e["dur"]) for e in events] == [
    ("parameter_server", "update", 0, 250_000),
    ("training_worker_0", "segment", 500_000, 750_000),
    ("training_worker_0", "segment", 2_500_000, 1_500_000),
  ]
  assert {e["ph"] for e in trace["traceEvents"]} == {"M", "X"}
  assert len({e["pid"] for e in trace["traceEvents"]}) == 1
  idle = trace["otherData"]["idle_share"]
  assert idle == {actor: pytest.approx(idle_share(track), abs=1e-6) for actor, track in timeline.items()}
