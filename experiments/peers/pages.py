"""Prints the answer and the tables of the measured speeds: `python -m experiments.peers.pages [--readme]`.

With `--readme` they are also written into README.md of this folder, and the tables into docs/peers.md.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.lib.command import command
from experiments.lib.results import ROOT
from experiments.lib.tables import markdown_table, write_between_markers
from experiments.peers.run import RESULTS
from experiments.peers.work import SIMULATIONS, SYSTEMS
from moozi.io.atomic_write import write_text

README = Path(__file__).resolve().parent / "README.md"
PAGE = ROOT / "docs" / "peers.md"
FULL = 3
"""Number of repetitions of a full measurement. One with fewer repetitions or less work is marked."""

QUIET = 0.1
"""Largest share of the processors that other programs may use in a full measurement."""

Rows = list[dict[str, Any]]


def rows_of(results: dict[str, Any], system: str, simulations: int | None = None) -> Rows:
  """Returns the measured rows of a system, of one number of simulations or of all."""
  return [
    row
    for row in results["rows"]
    if row["system"] == system and "failure" not in row and simulations in (None, row["simulations"])
  ]


def median_of(rows: Rows, key: str) -> float | None:
  return statistics.median(row[key] for row in rows) if rows else None


def failures_of(results: dict[str, Any], system: str) -> list[str]:
  """Returns the distinct reasons of a system's failures, in order."""
  return list(
    dict.fromkeys(row["failure"] for row in results["rows"] if row["system"] == system and "failure" in row)
  )


def _rate(rows: Rows, key: str, is_best: bool) -> str:
  """Returns the median with its range."""
  if not rows:
    return "–"
  values = sorted(row[key] for row in rows)
  median = f"{statistics.median(values):,.0f}"
  span = f" ({values[0]:,.0f} to {values[-1]:,.0f})" if len(values) > 1 else ""
  return (f"**{median}**" if is_best else median) + span


def _ratio(rows: Rows, reference: Rows, key: str) -> str:
  own, base = median_of(rows, key), median_of(reference, key)
  return "–" if own is None or base is None else f"{own / base:.2f}"


def _columns(results: dict[str, Any], keys: Sequence[str], simulations: int | None) -> list[list[str]]:
  """Returns for each system its rate and the ratio to MooZi's, by key; bold is the best of a column."""
  found = {system.key: rows_of(results, system.key, simulations) for system in SYSTEMS}
  lines = []
  for system in SYSTEMS:
    cells = [system.name]
    for key in keys:
      best = max((median_of(rows, key) or 0.0) for rows in found.values())
      rows = found[system.key]
      cells += [_rate(rows, key, median_of(rows, key) == best), _ratio(rows, found["moozi"], key)]
    lines.append(cells)
  return lines


def speed_table(results: dict[str, Any]) -> str:
  """Returns the table of acting and training, by simulations."""
  columns = ("simulations", "system", "acting, steps/s", "× MooZi", "training, steps/s", "× MooZi")
  keys = ("act_steps_per_s", "train_steps_per_s")
  lines = [
    [str(simulations), *cells]
    for simulations in results["simulations"]
    for cells in _columns(results, keys, simulations)
  ]
  return markdown_table(columns, lines)


def learning_table(results: dict[str, Any]) -> str:
  """Returns the table of networks and of learning, which does not depend on the simulations."""
  columns = ("system", "version", "parameters", "of these in a simulation", "learning, samples/s", "× MooZi")
  lines = []
  for system, cells in zip(SYSTEMS, _columns(results, ("learn_samples_per_s",), None), strict=True):
    rows = rows_of(results, system.key)
    if not rows:
      lines.append([system.name, "–", "–", "–", "–", "–"])
      continue
    versions = ", ".join(f"{name} {text}" for name, text in rows[-1]["versions"].items())
    sizes = [f"{rows[-1][key]:,}" for key in ("parameters", "parameters_per_simulation")]
    lines.append([system.name, versions, *sizes, *cells[1:]])
  return markdown_table(columns, lines)


def is_preliminary(results: dict[str, Any]) -> bool:
  """Returns whether a measurement had less work than a full one, or other programs used the machine."""
  is_short = results["repetitions"] < FULL or results["share"] < 1
  return is_short or results["simulations"] != list(SIMULATIONS) or results["busy"] > QUIET


def answer(results: dict[str, Any]) -> str:
  """Returns a sentence for acting and one for training: which peers are faster, and by how much."""
  acting, training = (_compared(results, f"{key}_steps_per_s") for key in ("act", "train"))
  if not acting:
    return "No peer was measured."
  start = "Preliminary: in" if is_preliminary(results) else "In"
  counts = " or ".join(map(str, results["simulations"]))
  return f"{start} acting with {counts} simulations, {acting}. In training, {training}."


def _compared(results: dict[str, Any], key: str) -> str:
  """Returns a clause on the peers that are faster with some number of simulations, and one on the others.

  The text is empty if MooZi or all peers have no rows.
  """
  ratios: dict[str, list[float]] = {}
  for system in SYSTEMS[1:]:
    for count in results["simulations"]:
      own, base = (median_of(rows_of(results, each, count), key) for each in (system.key, "moozi"))
      if own is not None and base is not None:
        ratios.setdefault(system.name, []).append(own / base)
  faster = {name: found for name, found in ratios.items() if max(found) >= 1}
  others = [name for name in ratios if name not in faster]
  clauses = []
  if faster:
    found = [ratio for each in faster.values() for ratio in each]
    span = " to ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (min(found), max(found))))
    clauses.append(f"{_joined(faster)} {'are' if len(faster) > 1 else 'is'} {span} times as fast as MooZi")
  if others:
    clauses.append(f"MooZi is faster than {_joined(others)}")
  return ", and ".join(clauses)


def _joined(names: Iterable[str]) -> str:
  *first, last = names
  return f"{', '.join(first)} and {last}" if first else last


def conditions(results: dict[str, Any]) -> str:
  """Returns the paragraph below the tables: machine, repetitions, and what failed."""
  machine, repetitions, commit = (results[key] for key in ("machine", "repetitions", "commit"))
  lines = []
  if is_preliminary(results):
    lines.append(
      "**Preliminary: a short run, or one on a machine that other programs used at the same time.** The"
      " ratios may be wrong by a factor of two or more."
    )
  if repetitions > 1:
    figures = (
      f"medians of {repetitions} repetitions, in which the systems alternate, with the range in brackets"
    )
  else:
    figures = "from one run of each system, one after the other"
  lines.append(
    f"One core of {machine['cpu']}, Python {machine['python']}, MooZi of commit {commit or 'unknown'}. The"
    f" figures are {figures}. Bold is the best of a column. The rates exclude compilation."
  )
  for system in SYSTEMS:
    count = sum(1 for row in results["rows"] if row["system"] == system.key and "failure" in row)
    for reason in failures_of(results, system.key):
      lines.append(f"{system.name}: {count} of its jobs failed: `{reason.replace('`', chr(39))}`.")
  return "\n\n".join(lines)


def text_of(results: dict[str, Any]) -> str:
  """Returns the tables with their conditions."""
  return "\n\n".join((speed_table(results), learning_table(results), conditions(results)))


def with_answer(readme: str, sentence: str) -> str:
  """Returns README.md with the sentence as its answer, a paragraph of one line before the tables."""
  return re.sub(
    r"^\*\*Answer\.\*\* .*$", lambda _: f"**Answer.** {sentence}", readme, count=1, flags=re.MULTILINE
  )


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--readme", action="store_true", help="also write the tables into the pages")
  options = parser.parse_args(arguments)
  results = json.loads(RESULTS.read_text("utf-8"))
  sentence, text = answer(results), text_of(results)
  if options.readme:
    write_text(README, with_answer(README.read_text("utf-8"), sentence))
    write_between_markers(README, "peers", text)
    write_between_markers(PAGE, "peers", text)
  print(f"{sentence}\n\n{text}")
  return 0


if __name__ == "__main__":
  sys.exit(main())
