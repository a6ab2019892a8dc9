"""Reports of actors: the spans of their calls on the wall clock, their busy time and their memory."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# The roles of actors.
SERVER, REPLAY = "parameter_server", "replay_buffer"
WORKER, REANALYZE_WORKER, TESTING_WORKER = "training_worker", "reanalyze_worker", "testing_worker"
INFERENCE_SERVER = "inference_server"
ROLES = (SERVER, REPLAY, INFERENCE_SERVER, WORKER, REANALYZE_WORKER, TESTING_WORKER)


@dataclasses.dataclass(frozen=True, order=True)
class ActorId:
  """An actor: its role, and its index among the actors of this role, if there can be several.

  Its text is its name, such as `training_worker_0`, in reports, messages and the names of log files.
  """

  role: str
  index: int | None = None

  def __str__(self) -> str:
    return self.role if self.index is None else f"{self.role}_{self.index}"


class Span(NamedTuple):
  """One call of an actor: its kind (`name`), and its start and end on the wall clock (`time.time`)."""

  name: str
  start_s: float
  end_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch:
  """The spans of one actor between two times of the wall clock, sorted and without overlap."""

  since_s: float
  until_s: float
  spans: tuple[Span, ...]

  def within(self, since_s: float, until_s: float) -> "Stretch | None":
    """Returns the part between two times, with spans cut at these times; None if it is empty."""
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
  """An actor's busy time and spans since its previous report, and its memory."""

  elapsed_s: float
  busy_s: float  # time inside spans
  memory_mib: float | None = None  # None in the driver's process
  stretch: Stretch | None = None  # None if spans are not kept


# Stretches by actor, sorted by time.
Timeline = Mapping[str, Sequence[Stretch]]


def shares(stretches: Sequence[Stretch]) -> dict[str, float]:
  """Returns the share of the time that each kind of span takes, largest first; the rest is idle time."""
  total = sum(stretch.until_s - stretch.since_s for stretch in stretches)
  seconds: dict[str, float] = {}
  for span in (span for stretch in stretches for span in stretch.spans):
    seconds[span.name] = seconds.get(span.name, 0.0) + span.end_s - span.start_s
  return {name: seconds[name] / max(total, 1e-9) for name in sorted(seconds, key=lambda name: -seconds[name])}


def idle_share(stretches: Sequence[Stretch]) -> float:
  """Returns the share of the time outside any span."""
  return max(0.0, 1.0 - sum(shares(stretches).values()))


def ends(timeline: Timeline) -> tuple[float, float]:
  """Returns the first and the last time of a timeline that is not empty."""
  stretches = [stretch for track in timeline.values() for stretch in track]
  return min(s.since_s for s in stretches), max(s.until_s for s in stretches)


def part_of(timeline: Timeline, since_s: float, until_s: float) -> Timeline:
  """Returns the part of a timeline between two times; actors without a stretch in it are left out."""
  parts = {a: [part for s in track if (part := s.within(since_s, until_s))] for a, track in timeline.items()}
  return {actor: track for actor, track in parts.items() if track}


def in_order(timeline: Timeline) -> Timeline:
  """Returns the timeline with its actors sorted by role (the parameter server first), then by index."""

  def key(actor: str) -> tuple[int, int, str]:
    kind = next((i for i, name in enumerate(ROLES) if actor.startswith(name)), len(ROLES))
    return kind, len(actor), actor  # the length comes first, so worker_10 follows worker_2

  return {actor: timeline[actor] for actor in sorted(timeline, key=key)}
