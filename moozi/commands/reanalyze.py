"""The command `moozi reanalyze`."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands import common
from moozi.core.errors import UserError
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.acting.reanalyzer import Reanalyzer
  from moozi.acting.stored_positions import LaneRoots
  from moozi.core.records import SearchedRoots, SearchRoots, TrajectorySample
  from moozi.io.trajectory_file import TrajectoryFile
  from moozi.io.trajectory_folder import TrajectoryStore

# Roots are searched in groups of this number of calls; only the last call of a group is padded.
_CALLS_PER_GROUP = 8
_CHANGES = ("value_change", "value_change_abs", "policy_divergence")


def reanalyze(
  run: Annotated[Path, typer.Argument(metavar="RUN", help="The run whose network and search are used.")],
  out: Annotated[Path, typer.Option(metavar="PATH", help="Output folder; must not exist.")],
  trajectories: Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Input: a run or a folder of trajectories. Default: RUN."),
  ] = None,
  checkpoint: common.Checkpoint = None,
  as_json: common.AsJson = False,
  allow_code: common.AllowCode = False,
) -> int:
  """Search stored trajectories again with a checkpoint's network, and write new trajectories."""
  from moozi.api.loading import agent_of
  from moozi.api.run_access import check_has_model, open_run, writing
  from moozi.io.plain_data import to_plain_json
  from moozi.io.trajectory_folder import open_trajectories
  from moozi.io.zoo_files import resolve_run

  directory, config = open_run(run, allow_code)
  check_has_model(run, config, "`moozi reanalyze`")
  if os.path.lexists(out):
    raise UserError(f"--out={out}: exists and is not overwritten; choose another name")
  with writing("--out", out):
    if not out.absolute().parent.is_dir():
      raise UserError(f"--out={out}: the folder {out.absolute().parent} does not exist; create it first")
  with common.stdout_to_stderr():
    agent = agent_of(directory, config, checkpoint)
    spec = agent.spec
    store = open_trajectories(resolve_run(run if trajectories is None else trajectories), spec)
    from moozi.acting.stored_positions import LaneRoots
    from moozi.run import build

    # The command is a search also where training only renews values.
    searching = config.reanalyze.model_copy(update={"search": True})
    reanalyzer = build.build_reanalyzer(config.model_copy(update={"reanalyze": searching}), spec, 0)
    reanalyzer.set_parameters(agent.state.variables, agent.checkpoint.learner_steps)
    lanes = LaneRoots(spec, config.targets.history_length)
    figures = _search_all(store, reanalyzer, lanes, config.reanalyze.batch_size * _CALLS_PER_GROUP, out)
  result = {"env": spec.name, "checkpoint": agent.checkpoint.name, "out": str(out), "steps": store.num_steps}
  result |= figures
  say(json.dumps(to_plain_json(result), allow_nan=False) if as_json else _table(result))
  return 0


def _search_all(
  store: "TrajectoryStore", reanalyzer: "Reanalyzer", lanes: "LaneRoots", count: int, out: Path
) -> dict[str, Any]:
  """Searches all steps and returns the totals. Writes all new trajectories, or none if an error occurs."""
  from moozi.api.run_access import new_folder, writing
  from moozi.io.trajectory_folder import write_steps

  totals = _Totals()
  done = 0
  with new_folder("--out", out) as temporary, common.progress_bar("steps") as show:
    show(done, store.num_steps)
    for info in store.files:
      steps = _read_valid(info)
      new: list[TrajectorySample] = []
      roots = [lanes.add(span.lane, part) for span, part in zip(info.spans, steps, strict=True)]
      for part in _search_parts(steps, roots, lambda joined: totals.search(reanalyzer, joined), count):
        new.append(part)
        done += len(part.action)
        show(done, store.num_steps)
      with writing("--out", out):
        write_steps(temporary, info, new)
  return totals.figures()


def _read_valid(info: "TrajectoryFile") -> "list[TrajectorySample]":
  """Reads a file's steps. Raises UserError if the steps violate a rule of stored segments."""
  from moozi.io.trajectory_file import read_steps
  from moozi.replay.validation import check_stored

  steps = read_steps(info)
  for span, part in zip(info.spans, steps, strict=True):
    try:
      check_stored(part, info.spec)
    except ValueError as e:
      raise UserError(f"{info.path}: lane {span.lane}: {e}") from None
  return steps


def _search_parts(
  steps: "list[TrajectorySample]",
  roots: "list[SearchRoots]",
  search: "Callable[[SearchRoots], SearchedRoots]",
  count: int,
) -> "Iterator[TrajectorySample]":
  """Yields each part of `steps` with the values and policies of a new search.

  Each call of `search` gets at least `count` positions; the last one may get fewer.
  """
  from moozi.acting.stored_positions import join_roots, with_searched

  first = 0
  for stop in range(1, len(steps) + 1):
    joined = sum(len(r.slot) for r in roots[first:stop])
    if joined < count and stop < len(steps):
      continue
    parts = range(first, stop)
    searched = search(join_roots([roots[i] for i in parts])) if joined else None
    row, first = 0, stop
    for i in parts:
      rows = slice(row, row + len(roots[i].slot))
      row = rows.stop
      yield steps[i] if searched is None else with_searched(steps[i], roots[i].slot, searched, rows)


class _Totals:
  """Sums the results of all searches. The rate excludes the first search, which compiles."""

  def __init__(self) -> None:
    self._sums: dict[str, float] = {}
    self._num_positions = self._timed_positions = 0
    self._timed_s = 0.0

  def search(self, reanalyzer: "Reanalyzer", roots: Any) -> Any:
    start = time.perf_counter()
    searched, metrics = reanalyzer.run(roots)
    count = len(roots.slot)
    if not all(math.isfinite(metrics[f"reanalyze/{name}"]) for name in _CHANGES):
      raise UserError("the search returned values or policies that are not finite; try another --checkpoint")
    if self._num_positions:
      self._timed_s += time.perf_counter() - start
      self._timed_positions += count
    for name in _CHANGES:
      self._sums[name] = self._sums.get(name, 0.0) + metrics[f"reanalyze/{name}"] * count
    self._num_positions += count
    return searched

  def figures(self) -> dict[str, Any]:
    count = max(self._num_positions, 1)
    rate = self._timed_positions / self._timed_s if self._timed_s else None
    means = {name: total / count for name, total in self._sums.items()}
    return {"positions": self._num_positions, "positions_per_s": rate} | means


def _table(result: dict[str, Any]) -> str:
  rate = result["positions_per_s"]
  rows = (
    ("trajectories", f"{result['steps']:,} steps of {result['env']} in {result['out']}"),
    ("checkpoint", result["checkpoint"]),
    ("positions searched", f"{result['positions']:,}"),
    ("positions/s", "too few to measure" if rate is None else f"{rate:,.0f}"),
    ("mean change in value", f"{result.get('value_change', 0.0):+.4f}"),
    ("mean absolute change", f"{result.get('value_change_abs', 0.0):.4f}"),
    ("policy divergence, old to new", f"{result.get('policy_divergence', 0.0):.4f} nats (Jensen-Shannon)"),
  )
  return "\n".join(f"{name:<30} {value}" for name, value in rows)
