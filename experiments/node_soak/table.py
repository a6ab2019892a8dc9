"""The tables and the picture of the soak over nodes."""

import json
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.fault_soak.analysis import fifths
from experiments.lib.pictures import Panel, Points, curves
from experiments.lib.tables import markdown_table
from experiments.node_soak.soak import (
  ACTOR_EVENTS,
  COUNTERS,
  EVENTS,
  NAMES,
  NODE_EVENTS,
  RESULT,
  must_be_counted,
  unaccounted,
  unaccounted_updates,
)

if TYPE_CHECKING:
  from matplotlib.figure import Figure


def read() -> dict[str, Any]:
  """Returns the committed result."""
  found: dict[str, Any] = json.loads(RESULT.read_text("utf-8"))
  return found


def run_table() -> str:
  """Returns what the run made, lost and used."""
  result = read()
  faults, first, last = result["faults"], *(_median_of_fifth(result, index) for index in (0, -1))
  rows = {
    "events": len(result["events"]),
    "environment steps": result["env_steps"],
    "updates": result["updates"],
    "steps lost with shards of replay": faults["lost_steps"],
    "steps dropped before they were counted": faults["dropped_steps"],
    "requests to inference servers that were repeated": faults.get("repeated_requests", 0),
    "updates lost": faults["lost_updates"],
    "steps not accounted for": unaccounted(result),
    "updates not accounted for": unaccounted_updates(result),
    "MiB of resident memory, first fifth": first,
    "MiB of resident memory, last fifth": last,
  }
  title = f"over {result['wall_s'] / 60:.0f} minutes"
  return markdown_table(
    (title, "two to four nodes"), [(name, f"{value:,.0f}") for name, value in rows.items()]
  )


def _median_of_fifth(result: dict[str, Any], index: int) -> float:
  return float(statistics.median(fifths([sample["resident_mib"] for sample in result["samples"]])[index]))


def events_table() -> str:
  """Returns the number of events of each kind, what ended, and how long the run took to continue."""
  rows = []
  for kind in EVENTS:
    found = [event for event in read()["events"] if event["kind"] == kind]
    ended = {name: sum(event["ended"].get(name, 0) for event in found) for name in COUNTERS}
    text = ", ".join(f"{count} {_without_article(name)}" for name, count in ended.items() if count)
    seconds = [event["recovered_s"] for event in found]
    spread = f"{statistics.median(seconds):.0f} ({min(seconds)} to {max(seconds)})" if seconds else "–"
    rows.append((kind, f"{len(found)}", text or "–", spread))
  return markdown_table(("event", "number", "processes that ended", "seconds until it recovered"), rows)


def _without_article(name: str) -> str:
  """Returns the name of a class of actors in the events."""
  return NAMES.get(name, "the testing worker").partition(" ")[2]


def counters_table() -> str:
  """Returns the failures that the events have made, beside those that the run counted."""
  result = read()
  made, faults = must_be_counted(result["events"]), result["faults"]
  rows = [(f"`faults/{x}`", f"{made[x]}", f"{faults[x]}") for x in dict.fromkeys(COUNTERS.values())]
  return markdown_table(("counter", "failures", "counted"), rows)


def steps() -> "Figure":
  """Draws environment steps over time, with a dot for each event."""
  result, y = read(), "environment steps (thousands)"

  def points(rows: list[dict[str, Any]]) -> Points:
    return np.array([row["s"] for row in rows], float), np.array([row["env_steps"] / 1e3 for row in rows])

  groups = {kind: [kind] for kind in NODE_EVENTS}
  for what in ("is killed", "is stopped for a minute"):
    groups[f"an actor {what}"] = [kind for kind in ACTOR_EVENTS if kind.endswith(what)]
  events = {
    name: [points([event for event in result["events"] if event["kind"] in kinds])]
    for name, kinds in groups.items()
  }
  return curves(
    Panel(curves={"the run": [points(result["samples"])]}, dots=events, x="wall_s", y=y), height=3.6
  )


TABLES = {"run": run_table, "events": events_table, "counters": counters_table}
PICTURES = {"results/steps.png": steps}
