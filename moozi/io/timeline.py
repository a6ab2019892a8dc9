"""Writes and reads a run's timeline, `spans.jsonl`, and converts it to a trace for Perfetto."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moozi.core.actor_report import Span, Stretch, Timeline, ends, idle_share, in_order
from moozi.core.errors import UserError
from moozi.io.plain_data import read_json_lines
from moozi.io.sinks import AppendFile

SPANS = "spans.jsonl"
_MAX_ACTORS = 1000
_MAX_NAME_LENGTH = 80


class TimelineFile:
  """Appends the spans that actors report to `spans.jsonl` in a folder, one line per Stretch.

  The first write creates the folder, and replaces the file of an earlier part of the run.
  """

  def __init__(self, folder: Path) -> None:
    self._folder = folder
    self._file: AppendFile | None = None
    self._pending = b""

  def add(self, stretches: Mapping[str, Stretch | None]) -> None:
    """Adds a Stretch, or None, for each actor; `flush` writes the stretches."""
    for actor, stretch in stretches.items():
      if stretch is not None:
        spans = [[span.name, round(span.start_s, 6), round(span.end_s, 6)] for span in stretch.spans]
        times = {"since_s": round(stretch.since_s, 6), "until_s": round(stretch.until_s, 6)}
        self._pending += json.dumps({"actor": actor} | times | {"spans": spans}).encode() + b"\n"

  def flush(self) -> None:
    """Writes the pending stretches. Raises OSError if the disk is full; they then stay pending."""
    if self._file is None and self._pending:
      self._folder.mkdir(exist_ok=True)
      (self._folder / SPANS).unlink(missing_ok=True)
      self._file = AppendFile(self._folder / SPANS)
    if self._file is not None:
      # If the write fails, AppendFile keeps the data.
      data, self._pending = self._pending, b""
      self._file.write(data)

  def close(self) -> None:
    """Writes the pending stretches and closes the file; a second call does nothing.

    Raises: OSError: the pending stretches cannot be written and are lost.
    """
    try:
      if self._pending:
        self.flush()
    finally:
      if self._file is not None:
        self._file.close()


def read_timeline(folder: Path) -> Timeline:
  """Reads spans.jsonl from a folder; skips an incomplete last line.

  Raises: UserError: the file is missing, or its content is not a timeline.
  """
  if not (folder / SPANS).exists():
    raise UserError(
      f"{folder.parent}: has no timeline; train an algorithm with replay, with timeline.seconds above 0 "
      "(`moozi train` records it from the first update on)"
    )
  out: dict[str, list[Stretch]] = {}

  def add(data: Any) -> None:
    spans = tuple(Span(_name(name), _time(start), _time(end)) for name, start, end in data["spans"])
    stretch = Stretch(since_s=_time(data["since_s"]), until_s=_time(data["until_s"]), spans=spans)
    times = [stretch.since_s, *(t for span in spans for t in span[1:]), stretch.until_s]
    track = out.setdefault(_name(data["actor"]), [])
    if times != sorted(times) or (track and stretch.since_s < track[-1].until_s):
      raise ValueError("times are not sorted")
    if len(out) > _MAX_ACTORS:
      raise ValueError(f"more than {_MAX_ACTORS} actors")
    track.append(stretch)

  for _ in read_json_lines(folder / SPANS, add):
    pass
  if not any(out.values()):
    raise UserError(f"{folder / SPANS}: is empty")
  return in_order({actor: track for actor, track in out.items() if track})


def _name(value: Any) -> str:
  if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _MAX_NAME_LENGTH:
    raise ValueError(f"not a name: {value!r:.100}")
  return value


def _time(value: Any) -> float:
  if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
    raise ValueError(f"not a time: {value!r:.100}")
  return float(value)


def trace_of(timeline: Timeline, name: str) -> dict[str, Any]:
  """Returns a timeline in Chrome's trace format, for ui.perfetto.dev, with one track per actor.

  The timeline must not be empty. The events are complete events ("X"), sorted by start; times are in
  microseconds since the timeline's start.
  """
  begin_s, _ = ends(timeline)
  metadata: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": name}}]
  events: list[dict[str, Any]] = []
  for tid, (actor, stretches) in enumerate(timeline.items(), start=1):
    track = {"pid": 1, "tid": tid}
    metadata.append({"ph": "M", "name": "thread_name", "args": {"name": actor}} | track)
    metadata.append({"ph": "M", "name": "thread_sort_index", "args": {"sort_index": tid}} | track)
    for span in (span for stretch in stretches for span in stretch.spans):
      start, end = (round((s - begin_s) * 1e6) for s in (span.start_s, span.end_s))
      events.append({"ph": "X", "name": span.name, "cat": actor, "ts": start, "dur": end - start} | track)
  events.sort(key=lambda event: (event["ts"], event["tid"]))
  idle = {actor: round(idle_share(stretches), 6) for actor, stretches in timeline.items()}
  return {"traceEvents": metadata + events, "displayTimeUnit": "ms", "otherData": {"idle_share": idle}}
