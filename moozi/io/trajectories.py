"""Trajectories on disk: a folder of files, each there whole or not at all, that hold every acted step.

A file is named after the environment steps before it and after it. Steps wait in memory until there are
enough for a file, half a minute has passed, or a checkpoint is made; a kill loses what waits and nothing
else. Steps that a full disk refuses wait for the next file. Who reads a folder that is being written sees
the files that are there.
"""

import concurrent.futures
import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from moozi.core.errors import UserError
from moozi.core.flat_state import State
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.io.atomic_write import write_bytes
from moozi.io.trajectory_file import LaneSpan, TrajectoryFile, encode_file, read_header, read_steps
from moozi.io.tree_files import first_difference

FOLDER = "trajectories"
_NAME = re.compile(r"[0-9]{12}-[0-9]{12}\.traj")
_FILE_STEPS = 16_384
_FILE_BYTES = 64 << 20
_FILE_AGE_S = 30.0
_MOST_WAITING_BYTES = 512 << 20


@dataclasses.dataclass(frozen=True)
class StoredSteps:
  """Steps of one lane, [T, …], and which they are."""

  span: LaneSpan
  steps: TrajectorySample


@dataclasses.dataclass(frozen=True)
class _Waiting:
  """A segment [T, B, …] for the next file, and the run's environment steps with it."""

  first_lane: int
  segment: TrajectorySample
  stop: int


class TrajectoryWriter:
  """Appends segments to a folder of trajectories; one file is packed and written in the background.

  Args:
    directory: made where it is not there. What an earlier writer left is continued.
    spec: the environment's facts.
    env_steps: steps of the run so far: files with steps after it are removed, and where there are none the
      first file begins there. None keeps all.
    state: of the run's writer at that moment, which knows better how far its files went; None: there is none.

  Raises: UserError: what is in the folder cannot be continued: damaged, or of another environment.
  """

  def __init__(
    self, directory: Path, spec: EnvSpec, env_steps: int | None = None, state: State | None = None
  ) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    self._directory, self._spec = directory, spec
    for leftover in directory.glob(".*.traj.*.tmp"):
      leftover.unlink()
    if state:
      env_steps = int(state["stop"])
    self._env_steps, self._next_index = self._restore(env_steps)
    self._begin_waiting([])
    # Lanes that have lost steps: their next one begins anew.
    self._with_gap: set[int] = {int(lane) for lane in state["with_gap"]} if state else set()
    if env_steps is not None and self._env_steps < env_steps:
      # What came last is in no file.
      self._with_gap.update(self._next_index)
    self._pool = concurrent.futures.ThreadPoolExecutor(1, "trajectories")
    self._writing: tuple[concurrent.futures.Future[int], list[_Waiting]] | None = None

  def append(
    self, segment: TrajectorySample, first_lane: int, env_steps: int | None = None, follows: bool = True
  ) -> None:
    """Takes a segment [T, B, …] of lanes first_lane … first_lane+B-1; what it keeps it copies.

    Args:
      segment, first_lane: the next steps of those lanes.
      env_steps: of the run, with these; None counts what came.
      follows: false where steps of these lanes are missing before it: their histories begin anew.

    Raises: OSError: a file could not be written. Its steps wait for the next one; where too many wait, they
      are left out.
    """
    segment, lanes = (
      map_fields(np.array, segment),
      range(first_lane, first_lane + np.shape(segment.action)[1]),
    )
    for i, lane in enumerate(lanes):
      segment.is_first[0, i] |= not follows or lane in self._with_gap
    self._with_gap.difference_update(lanes)
    stop = max(self._stop + np.size(segment.action), env_steps or 0)
    self._begin_waiting([*self._waiting, _Waiting(first_lane, segment, stop)])
    is_old = time.monotonic() - self._waiting_since >= _FILE_AGE_S
    if self._num_waiting >= _FILE_STEPS or self._waiting_bytes >= _FILE_BYTES or is_old:
      self._begin_file()

  def flush(self) -> None:
    """Returns when everything is on the disk."""
    self._begin_file()
    self._finish_file()

  def close(self) -> None:
    """Flushes and ends; a second call does nothing."""
    try:
      self.flush()
    finally:
      self._pool.shutdown()

  def get_state(self) -> State:
    """How far its files go when all that came is in them, and which lanes begin anew.

    With Ray this is no number of the run's own: steps are told later than they are counted, and what a
    checkpoint waits for brings more of them.
    """
    return {"stop": self._stop, "with_gap": np.array(sorted(self._with_gap), np.int64)}

  @property
  def _stop(self) -> int:
    """Environment steps with all that came."""
    writing = self._writing[1] if self._writing is not None else []
    return [self._env_steps, *(w.stop for w in [*writing, *self._waiting])][-1]

  def _begin_waiting(self, waiting: list[_Waiting]) -> None:
    if len(waiting) == 1:
      self._waiting_since = time.monotonic()
    self._waiting = waiting
    self._num_waiting = sum(np.size(w.segment.action) for w in waiting)
    self._waiting_bytes = sum(x.nbytes for w in waiting for x in fields_of(w.segment).values())

  def _begin_file(self) -> None:
    # One at a time: memory stays bounded, and files appear in order.
    self._finish_file()
    if self._waiting:
      waiting = self._waiting
      self._writing = self._pool.submit(self._write, self._env_steps, waiting), waiting
      self._begin_waiting([])

  def _write(self, start: int, waiting: list[_Waiting]) -> int:
    parts: dict[int, list[TrajectorySample]] = {}
    for w in waiting:
      for i in range(np.shape(w.segment.action)[1]):
        parts.setdefault(w.first_lane + i, []).append(map_fields(lambda x, i=i: x[:, i], w.segment))
    lanes = {
      lane: (self._next_index.get(lane, 0), map_fields(lambda *xs: np.concatenate(xs), *steps))
      for lane, steps in parts.items()
    }
    env_steps = (start, waiting[-1].stop)
    write_bytes(self._directory / file_name(env_steps), encode_file(self._spec, env_steps, lanes))
    self._next_index |= {lane: first + len(steps.action) for lane, (first, steps) in lanes.items()}
    return env_steps[1]

  def _finish_file(self) -> None:
    if self._writing is None:
      return
    (writing, waiting), self._writing = self._writing, None
    try:
      self._env_steps = writing.result()
    except OSError:
      self._begin_waiting([*waiting, *self._waiting])
      if self._waiting_bytes > _MOST_WAITING_BYTES:
        for w in self._waiting:
          self._with_gap.update(range(w.first_lane, w.first_lane + np.shape(w.segment.action)[1]))
        self._begin_waiting([])
      raise

  def _restore(self, env_steps: int | None) -> tuple[int, dict[int, int]]:
    """Removes what lies after `env_steps`; the steps there are, and each lane's next index."""
    paths = sorted(p for p in self._directory.iterdir() if _NAME.fullmatch(p.name))
    for path in reversed(paths):
      if env_steps is not None and int(path.stem.partition("-")[2]) > env_steps:
        path.unlink()
        paths.remove(path)
    if not paths:
      return env_steps or 0, {}
    store = open_trajectories(self._directory, self._spec)
    return store.files[-1].env_steps[1], {span.lane: span.stop for f in store.files for span in f.spans}


@dataclasses.dataclass(frozen=True)
class TrajectoryStore:
  """Trajectories that can be read: a folder's files, in order, checked.

  Attributes:
    path: as it was given.
    spec: the environment's facts.
    files: in order; at least one.
  """

  path: Path
  spec: EnvSpec
  files: tuple[TrajectoryFile, ...]

  @property
  def num_steps(self) -> int:
    """Steps of all lanes."""
    return sum(f.num_steps for f in self.files)

  @property
  def lane_steps(self) -> dict[int, int]:
    """Steps by lane."""
    out: dict[int, int] = {}
    for span in (span for f in self.files for span in f.spans):
      out[span.lane] = out.get(span.lane, 0) + span.num_steps
    return dict(sorted(out.items()))

  def read(self) -> Iterator[StoredSteps]:
    """All steps, file by file; those of one lane come in order, and join.

    Raises: UserError: a file has changed since the store was opened.
    """
    for info in self.files:
      for span, steps in zip(info.spans, read_steps(info), strict=True):
        yield StoredSteps(span, steps)


def write_steps(directory: Path, info: TrajectoryFile, steps: list[TrajectorySample]) -> None:
  """Writes the file that `info` tells of into another folder, with other steps [T, …] in its spans."""
  lanes = {span.lane: (span.start, part) for span, part in zip(info.spans, steps, strict=True)}
  write_bytes(directory / file_name(info.env_steps), encode_file(info.spec, info.env_steps, lanes))


def file_name(env_steps: tuple[int, int]) -> str:
  """The name of the file with the steps from env_steps[0] to env_steps[1]."""
  return f"{env_steps[0]:012d}-{env_steps[1]:012d}.traj"


def open_trajectories(
  path: Path, spec: EnvSpec | None = None, max_env_steps: int | None = None
) -> TrajectoryStore:
  """The trajectories in a folder, a run's folder, or a single file; every checksum is looked at.

  Args:
    path: of it.
    spec: the environment they must be of; None takes any.
    max_env_steps: leave out files with steps after this one.

  Raises: UserError: no such folder, none in it, a file that is none of ours, cut or altered, a file missing
    between others, another environment.
  """
  files = [read_header(p) for p in _paths(path)]
  if max_env_steps is not None:
    kept = [f for f in files if f.env_steps[1] <= max_env_steps]
    if not kept:
      raise UserError(
        f"{path}: no file ends at or before env step {max_env_steps}; the first one ends at "
        f"{files[0].env_steps[1]}"
      )
    files = kept
  _check_joined(files)
  for f in files:
    wanted, whose = (files[0].spec, "the first file's") if spec is None else (spec, "the run's")
    difference = first_difference(f.spec.to_dict(), wanted.to_dict(), "spec")
    if difference is not None:
      where, there, here = difference
      raise UserError(
        f"{f.path}: trajectories of another environment: {where} is {there} there, and {whose} is {here}"
      )
  return TrajectoryStore(path, files[0].spec, tuple(files))


def _paths(path: Path) -> list[Path]:
  try:
    if path.is_file():
      return [path]
    if not path.is_dir():
      raise UserError(f"{path}: no such folder; trajectories, or a run with them, are needed")
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    found = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
  except (OSError, ValueError) as e:
    raise UserError(f"{str(path)!r}: cannot be read: {e}") from None
  if (folder / "config.yaml").exists():
    raise UserError(f"{path}: a run without trajectories; trajectories.save=true makes a run keep them")
  for p in found:
    if not _NAME.fullmatch(p.name):
      raise UserError(f"{p}: not a trajectory file; a folder of trajectories holds nothing else")
  if not found:
    raise UserError(f"{folder}: holds no trajectories")
  return found


def _check_joined(files: list[TrajectoryFile]) -> None:
  """Raises UserError where steps are missing between two files or before the first one."""
  # Whoever began to keep steps in the middle of a run has no file that begins at 0, but lanes that do.
  stop, next_index = files[0].env_steps[0], dict[int, int]()
  for f in files:
    if f.env_steps[0] != stop:
      raise UserError(
        f"{f.path}: begins at env step {f.env_steps[0]}: the file that begins at {stop} is missing"
      )
    stop = f.env_steps[1]
    for span in f.spans:
      if span.start != next_index.get(span.lane, 0) and len(files) > 1:
        raise UserError(f"{f.path}: the steps of lane {span.lane} do not join those of the files before it")
      next_index[span.lane] = span.stop
