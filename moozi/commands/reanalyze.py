"""`moozi reanalyze`."""

import contextlib
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands.agent import agent_of
from moozi.commands.common import AllowCode, Checkpoint, open_run, stdout_on_stderr
from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.acting.reanalyzer import Reanalyzer
  from moozi.acting.stored_positions import LaneRoots
  from moozi.core.records import SearchedRoots, SearchRoots, TrajectorySample
  from moozi.io.trajectories import TrajectoryStore
  from moozi.io.trajectory_file import TrajectoryFile

# Roots wait until there are so many calls' worth of them: only the last call of a file is filled up.
_CALLS_AT_ONCE = 8
_CHANGES = ("value_change", "value_change_abs", "policy_divergence")


def reanalyze(
  run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory: whose network and search.")],
  out: Annotated[
    Path, typer.Option(metavar="PATH", help="A folder that is not there yet: the new trajectories.")
  ],
  trajectories: Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A run or a folder of trajectories; RUN's own if not given."),
  ] = None,
  checkpoint: Checkpoint = None,
  as_json: Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")
  ] = False,
  allow_code: AllowCode = False,
) -> int:
  """Search stored trajectories again with a checkpoint's network."""
  from moozi.envs.registry import env_spec
  from moozi.io.plain_data import to_plain_json
  from moozi.io.trajectories import open_trajectories

  directory, settings = open_run(run, allow_code)
  if settings.algorithm != "muzero":
    raise UserError(f"{run}: a run of algorithm={settings.algorithm}; only muzero's networks search")
  if os.path.lexists(out):
    raise UserError(f"--out={out}: exists; nothing is ever overwritten: choose another name")
  if not out.absolute().parent.is_dir():
    raise UserError(f"--out={out}: the folder {out.absolute().parent} is not there")
  with stdout_on_stderr():
    spec = env_spec(settings.env.name, **settings.env.kwargs)
    store = open_trajectories(run if trajectories is None else trajectories, spec)
    agent = agent_of(directory, settings, checkpoint)
    from moozi.acting.stored_positions import LaneRoots
    from moozi.run import build

    reanalyzer = build.build_reanalyzer(settings, spec, 0)
    reanalyzer.set_parameters(agent.state.params, agent.state.net_state, agent.checkpoint.learner_steps)
    lanes = LaneRoots(spec, settings.targets.history_length)
    figures = _search_all(store, reanalyzer, lanes, settings.reanalyze.batch_size * _CALLS_AT_ONCE, out)
  result = {
    "env": spec.name,
    "checkpoint": agent.checkpoint.name,
    "out": str(out),
    "steps": store.num_steps,
  } | figures
  print(json.dumps(to_plain_json(result), allow_nan=False) if as_json else _table(result))
  return 0


def _search_all(
  store: "TrajectoryStore", reanalyzer: "Reanalyzer", lanes: "LaneRoots", count: int, out: Path
) -> dict[str, Any]:
  """Writes the new trajectories, whole or not at all, and returns the figures."""
  from moozi.io.trajectories import write_steps

  totals = _Totals()
  temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
  with _writing(out):
    temporary.mkdir()
  try:
    with _progress(store.num_steps) as advance:
      for info in store.files:
        steps = _read_sound(info)
        new: list[TrajectorySample] = []
        roots = [lanes.add(span.lane, part) for span, part in zip(info.spans, steps, strict=True)]
        for part in _search_parts(steps, roots, lambda joined: totals.search(reanalyzer, joined), count):
          new.append(part)
          advance(len(part.action))
        with _writing(out):
          write_steps(temporary, info, new)
    with _writing(out):
      os.rename(temporary, out)
  finally:
    shutil.rmtree(temporary, ignore_errors=True)
  return totals.figures()


def _read_sound(info: "TrajectoryFile") -> "list[TrajectorySample]":
  """A file's steps. Raises UserError: they break a convention of the records."""
  from moozi.io.trajectory_file import read_steps
  from moozi.replay.validation import check_stored

  steps = read_steps(info)
  for span, part in zip(info.spans, steps, strict=True):
    try:
      check_stored(part, info.spec)
    except ValueError as e:
      raise UserError(f"{info.path}: lane {span.lane}: {e}") from None
  return steps


@contextlib.contextmanager
def _writing(out: Path) -> Iterator[None]:
  """Tells what the disk refuses."""
  try:
    yield
  except OSError as e:
    raise UserError(f"--out={out}: cannot be written: {e.strerror or e}") from None


def _search_parts(
  steps: "list[TrajectorySample]",
  roots: "list[SearchRoots]",
  search: "Callable[[SearchRoots], SearchedRoots]",
  count: int,
) -> "Iterator[TrajectorySample]":
  """The parts in order, with the new search's values and policies; at least `count` positions a search."""
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
  """Sums over all searches; the first call of all, which compiles, is left out of the rate."""

  def __init__(self) -> None:
    self._sums: dict[str, float] = {}
    self._num_positions = self._timed_positions = 0
    self._timed_s = 0.0

  def search(self, reanalyzer: "Reanalyzer", roots: Any) -> Any:
    start = time.perf_counter()
    searched, metrics = reanalyzer.run(roots)
    count = len(roots.slot)
    if not all(math.isfinite(metrics[f"reanalyze/{name}"]) for name in _CHANGES):
      raise UserError("the search found values or policies that are not finite")
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


class _progress:  # noqa: N801 - used as a function
  """A bar on standard error, where that is a terminal; entering gives what advances it."""

  def __init__(self, total: int) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("steps"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    self._bar = Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty())
    self._task = self._bar.add_task("steps", total=total)

  def __enter__(self) -> Any:
    self._bar.start()
    return lambda count: self._bar.advance(self._task, count)

  def __exit__(self, *_: object) -> None:
    self._bar.stop()


def _table(result: dict[str, Any]) -> str:
  rate = result["positions_per_s"]
  rows = (
    ("trajectories", f"{result['steps']:,} steps of {result['env']}, now in {result['out']}"),
    ("checkpoint", result["checkpoint"]),
    ("positions searched", f"{result['positions']:,}"),
    ("positions/s", "too few to tell" if rate is None else f"{rate:,.0f}"),
    ("mean change in value", f"{result.get('value_change', 0.0):+.4f}"),
    ("mean size of the change", f"{result.get('value_change_abs', 0.0):.4f}"),
    ("policy divergence, old to new", f"{result.get('policy_divergence', 0.0):.4f} nats (Jensen-Shannon)"),
  )
  return "\n".join(f"{name:<30} {value}" for name, value in rows)
