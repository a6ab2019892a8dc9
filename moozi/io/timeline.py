"""The timeline of a run on disk: its own file of what each actor did, and Chrome's trace format."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moozi.core.actor_report import Span, Stretch, Timeline, ends, idle_share, in_order, joined
from moozi.core.errors import UserError
from moozi.io.sinks import AppendFile

SPANS = "spans.jsonl"
_MOST_ACTORS = 1000
_MOST_LETTERS = 80


class TimelineFile:
  """Writes stretches of work to `spans.jsonl` in a folder: a line each, those of one actor joined.

  The folder is made with the first of them. What an earlier part of the run left in the file makes room: it
  holds one window.
  """

  def __init__(self, folder: Path) -> None:
    self._folder = folder
    self._file: AppendFile | None = None
    self._waiting: dict[str, list[Stretch]] = {}

  def add(self, stretches: Mapping[str, Stretch | None]) -> None:
    """Takes stretches by actor; they are written with the next flush."""
    for actor, stretch in stretches.items():
      if stretch is not None:
        self._waiting.setdefault(actor, []).append(stretch)

  def flush(self) -> None:
    """Writes what waits. Raises OSError: it goes on waiting."""
    if self._file is None:
      if not self._waiting:
        return
      self._folder.mkdir(exist_ok=True)
      (self._folder / SPANS).unlink(missing_ok=True)
      self._file = AppendFile(self._folder / SPANS)
    waiting, self._waiting = self._waiting, {}
    lines = [_line(actor, stretch) for actor, some in waiting.items() for stretch in joined(some)]
    if lines:
      self._file.write("".join(lines).encode())
    else:
      self._file.flush()

  def close(self) -> None:
    """Writes what waits, and closes the file; a second call does nothing.

    Raises: OSError: what waited is lost.
    """
    try:
      self.flush()
    finally:
      if self._file is not None:
        self._file.close()


def _line(actor: str, stretch: Stretch) -> str:
  spans = [[span.name, round(span.start_s, 6), round(span.end_s, 6)] for span in stretch.spans]
  ends_s = {"since_s": round(stretch.since_s, 6), "until_s": round(stretch.until_s, 6)}
  return json.dumps({"actor": actor} | ends_s | {"spans": spans}) + "\n"


def read_timeline(folder: Path) -> Timeline:
  """The timeline that a run left in its folder; a last line that was cut off by a kill is left out.

  Raises: UserError: there is none, or the file is not one that a run wrote.
  """
  path = folder / SPANS
  try:
    if not path.exists():
      raise UserError(
        f"{folder.parent}: has no timeline; `moozi train` keeps one from its first update on, with "
        "timeline.seconds above 0 and algorithm=muzero"
      )
    if not path.is_file():
      raise ValueError("not a file")
    lines = path.read_text("utf-8").splitlines(keepends=True)
  except (OSError, ValueError) as e:
    raise UserError(f"{path}: cannot be read: {e}") from None
  out: dict[str, list[Stretch]] = {}
  for number, line in enumerate(lines, start=1):
    try:
      actor, stretch = _parse(line)
      if out.get(actor) and stretch.since_s < out[actor][-1].until_s:
        raise ValueError("begins before the actor's last one ends")
      out.setdefault(actor, []).append(stretch)
      if len(out) > _MOST_ACTORS:
        raise ValueError(f"more than {_MOST_ACTORS} actors")
    except (ValueError, TypeError, KeyError, RecursionError) as e:
      if number == len(lines) and not line.endswith("\n"):
        break
      raise UserError(f"{path}: line {number} is not of a timeline: {e!r}") from None
  if not out:
    raise UserError(f"{path}: is empty")
  return in_order(out)


def _parse(line: str) -> tuple[str, Stretch]:
  data = json.loads(line)
  since_s, until_s = _time(data["since_s"]), _time(data["until_s"])
  spans, before_s = [], since_s
  for name, start, end in data["spans"]:
    span = Span(_name(name), _time(start), _time(end))
    if not before_s <= span.start_s <= span.end_s <= until_s:
      raise ValueError(f"{span} is out of place")
    before_s = span.end_s
    spans.append(span)
  if since_s > until_s:
    raise ValueError("ends before it begins")
  return _name(data["actor"]), Stretch(since_s=since_s, until_s=until_s, spans=tuple(spans))


def _name(value: Any) -> str:
  if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _MOST_LETTERS:
    raise ValueError(f"no name: {value!r:.100}")
  return value


def _time(value: Any) -> float:
  if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
    raise ValueError(f"no time: {value!r:.100}")
  return float(value)


def trace_of(timeline: Timeline, name: str) -> dict[str, Any]:
  """A timeline in Chrome's trace format, for ui.perfetto.dev and chrome://tracing: a track to an actor.

  Args:
    timeline: not empty.
    name: of the run.

  Returns: plain data for JSON. Complete events ("X") come in the order of their beginnings, in microseconds
    from the timeline's.
  """
  begin_s, _ = ends(timeline)
  named: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": name}}]
  events: list[dict[str, Any]] = []
  for track, (actor, stretches) in enumerate(timeline.items(), start=1):
    named.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": track, "args": {"name": actor}})
    named.append(
      {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": track, "args": {"sort_index": track}}
    )
    for stretch in stretches:
      for span in stretch.spans:
        start, end = (round((s - begin_s) * 1e6) for s in (span.start_s, span.end_s))
        event = {
          "ph": "X",
          "name": span.name,
          "cat": actor,
          "ts": start,
          "dur": end - start,
          "pid": 1,
          "tid": track,
        }
        events.append(event)
  events.sort(key=lambda event: (event["ts"], event["tid"]))
  idle = {actor: round(idle_share(stretches), 6) for actor, stretches in timeline.items()}
  return {"traceEvents": named + events, "displayTimeUnit": "ms", "otherData": {"idle_share": idle}}
