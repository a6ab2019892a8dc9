"""What an actor did: pieces of work on the wall clock, and how busy it was."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# What actors are called; workers have their number behind it (`training_worker_0`).
SERVER, REPLAY, TESTER, WORKER = "parameter_server", "replay_buffer", "testing_worker", "training_worker"
REANALYZE_WORKER = "reanalyze_worker"
_ORDER = (SERVER, REPLAY, WORKER, REANALYZE_WORKER, TESTER)


class Span(NamedTuple):
  """A piece of work: what it was, from when to when, in seconds of the wall clock (`time.time`)."""

  name: str
  start_s: float
  end_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch:
  """All that one actor did between two moments of the wall clock.

  Attributes:
    since_s, until_s: the moments.
    spans: what it did, all of it between them, in order, and none begun before the one before has ended.
  """

  since_s: float
  until_s: float
  spans: tuple[Span, ...]

  def within(self, since_s: float, until_s: float) -> "Stretch | None":
    """The part between two moments; spans that reach over one of them are cut. None where nothing is left."""
    since_s, until_s = max(since_s, self.since_s), min(until_s, self.until_s)
    if until_s <= since_s:
      return None
    spans = tuple(
      Span(span.name, max(span.start_s, since_s), min(span.end_s, until_s))
      for span in self.spans
      if span.end_s > since_s and span.start_s < until_s
    )
    return Stretch(since_s=since_s, until_s=until_s, spans=spans)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorReport:
  """What an actor tells of itself since the report before.

  Attributes:
    elapsed_s: since then.
    busy_s: at work in it.
    memory_mib: resident memory of its process; None where that is the driver's.
    stretch: each piece of work, where pieces are kept.
  """

  elapsed_s: float
  busy_s: float
  memory_mib: float | None = None
  stretch: Stretch | None = None


# Stretches by actor, each actor's in order.
Timeline = Mapping[str, Sequence[Stretch]]


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
  """The same with those put together that follow one another without a gap."""
  out: list[Stretch] = []
  for stretch in stretches:
    if out and out[-1].until_s == stretch.since_s:
      before = out.pop()
      spans = before.spans + stretch.spans
      stretch = Stretch(since_s=before.since_s, until_s=stretch.until_s, spans=spans)
    out.append(stretch)
  return out


def shares(stretches: Sequence[Stretch]) -> dict[str, float]:
  """The share of the time that went into each kind of work, the largest first; what is left is idle."""
  total = sum(stretch.until_s - stretch.since_s for stretch in stretches)
  seconds: dict[str, float] = {}
  for stretch in stretches:
    for span in stretch.spans:
      seconds[span.name] = seconds.get(span.name, 0.0) + span.end_s - span.start_s
  return {name: seconds[name] / max(total, 1e-9) for name in sorted(seconds, key=lambda name: -seconds[name])}


def idle_share(stretches: Sequence[Stretch]) -> float:
  """The share of the time with no work."""
  return max(0.0, 1.0 - sum(shares(stretches).values()))


def ends(timeline: Timeline) -> tuple[float, float]:
  """When a timeline that is not empty begins, and when it ends."""
  stretches = [stretch for track in timeline.values() for stretch in track]
  return min(s.since_s for s in stretches), max(s.until_s for s in stretches)


def part_of(timeline: Timeline, since_s: float, until_s: float) -> Timeline:
  """The part of a timeline between two moments; actors of whom nothing is left are left out."""
  out: dict[str, list[Stretch]] = {}
  for actor, track in timeline.items():
    left = [part for stretch in track if (part := stretch.within(since_s, until_s)) is not None]
    if left:
      out[actor] = left
  return out


def in_order(timeline: Timeline) -> Timeline:
  """The same with the actors sorted: the parameter server first, workers by number."""

  def place(actor: str) -> tuple[int, list[int | str]]:
    kind = next((i for i, name in enumerate(_ORDER) if actor.startswith(name)), len(_ORDER))
    # Text and numbers in turn: the tenth worker comes after the second.
    return kind, [int(p) if i % 2 else p for i, p in enumerate(re.split(r"([0-9]+)", actor))]

  return {actor: timeline[actor] for actor in sorted(timeline, key=place)}
