"""Writes and reads a folder of trajectory files with the acted steps of a run.

A file is named by the run's environment steps before and after it. Steps are buffered until there are enough
for a file, a segment arrives 30 seconds or more after the first one in the buffer, or a checkpoint is saved.
If the process is killed, only steps that are not in a file are lost. On a full disk, up to 512 MiB of steps
stay buffered. A process that reads the folder during the run sees only complete files.
"""

import concurrent.futures
import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from moozi.core.errors import UserError, reason_of
from moozi.core.flat_state import State
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.io.atomic_write import remove_leftovers, write_bytes
from moozi.io.plain_data import first_difference
from moozi.io.trajectory_file import LaneSpan, TrajectoryFile, encode_file, read_header, read_steps

FOLDER = "trajectories"
_NAME = re.compile(r"[0-9]{12}-[0-9]{12}\.traj")
_FILE_STEPS = 16_384
_FILE_BYTES = 64 << 20
_FILE_AGE_S = 30.0
_MAX_BUFFER_BYTES = 512 << 20


class StoredSteps(NamedTuple):
  """Steps [T, …] of one lane, and their place in the lane."""

  span: LaneSpan
  steps: TrajectorySample


@dataclasses.dataclass(frozen=True)
class _Buffered:
  """A segment [T, B, …] that is not in a file yet; `stop` is the run's environment steps after it."""

  first_lane: int
  segment: TrajectorySample
  stop: int

  @property
  def lanes(self) -> range:
    return range(self.first_lane, self.first_lane + np.shape(self.segment.action)[1])


class TrajectoryWriter:
  """Appends segments to a folder; a background thread compresses and writes the files, one at a time.

  Args:
    directory: the folder, created if it is missing. New files continue the existing ones.
    spec: the environment's specification.
    env_steps: environment steps from which the run continues. Files with later steps are removed. In an empty
      folder, the first file starts at this step. None keeps all files.
    state: result of `get_state` of the writer of the run's earlier part. Its step count replaces `env_steps`.

  Raises: UserError: a file in the folder is damaged, missing, or from another environment.
  """

  def __init__(
    self, directory: Path, spec: EnvSpec, env_steps: int | None = None, state: State | None = None
  ) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    self._directory, self._spec = directory, spec
    remove_leftovers(directory)
    if state:
      env_steps = int(state["stop"])
    self._env_steps, self._next_index = self._restore(env_steps)
    self._set_buffer([])
    # Lanes that have lost steps. Their next step is marked as a first step, so that no history spans the gap.
    self._with_gap: set[int] = {int(lane) for lane in state["with_gap"]} if state else set()
    if env_steps is not None and self._env_steps < env_steps:
      # No file has the last steps of these lanes before `env_steps`.
      self._with_gap.update(self._next_index)
    self._pool = concurrent.futures.ThreadPoolExecutor(1, "trajectories")
    self._writing: tuple[concurrent.futures.Future[int], list[_Buffered]] | None = None

  def append(
    self, segment: TrajectorySample, first_lane: int, env_steps: int | None = None, follows: bool = True
  ) -> None:
    """Buffers a copy of the next segment [T, B, …] of lanes first_lane … first_lane+B-1.

    Args:
      segment: the steps.
      first_lane: the lane of the segment's first column.
      env_steps: the run's environment steps after the segment; None adds the segment's steps to the previous
        count.
      follows: false if steps are missing before the segment. Each lane's first step is then marked as one.

    Raises: OSError: a file cannot be written. Its steps stay buffered, but all buffered steps are dropped if
      they take more than 512 MiB.
    """
    segment = map_fields(np.array, segment)
    stop = max(self._stop + np.size(segment.action), env_steps or 0)
    buffered = _Buffered(first_lane, segment, stop)
    for i, lane in enumerate(buffered.lanes):
      segment.is_first[0, i] |= not follows or lane in self._with_gap
    self._with_gap.difference_update(buffered.lanes)
    self._set_buffer([*self._buffer, buffered])
    is_old = time.monotonic() - self._buffer_since >= _FILE_AGE_S
    num_steps = sum(np.size(b.segment.action) for b in self._buffer)
    if num_steps >= _FILE_STEPS or self._buffer_bytes >= _FILE_BYTES or is_old:
      self._start_file()

  def flush(self) -> None:
    """Writes all buffered steps to the disk. Errors as in `append`."""
    self._start_file()
    self._finish_file()

  def close(self) -> None:
    """Flushes and stops the background thread; a second call does nothing."""
    try:
      self.flush()
    finally:
      self._pool.shutdown()

  def get_state(self) -> State:
    """Returns the environment steps after the last appended segment, and the lanes that have lost steps.

    With Ray, the run's own counter may be higher: it also counts segments that are not appended yet.
    """
    return {"stop": self._stop, "with_gap": np.array(sorted(self._with_gap), np.int64)}

  @property
  def _stop(self) -> int:
    """Environment steps after the last appended segment."""
    writing = self._writing[1] if self._writing is not None else []
    return [self._env_steps, *(b.stop for b in [*writing, *self._buffer])][-1]

  def _set_buffer(self, buffer: list[_Buffered]) -> None:
    if len(buffer) == 1:
      self._buffer_since = time.monotonic()
    self._buffer = buffer
    self._buffer_bytes = sum(x.nbytes for b in buffer for x in fields_of(b.segment).values())

  def _start_file(self) -> None:
    # One file at a time, so that memory is bounded and files appear in order.
    self._finish_file()
    if self._buffer:
      self._writing = self._pool.submit(self._write, self._env_steps, self._buffer), self._buffer
      self._set_buffer([])

  def _write(self, start: int, buffer: list[_Buffered]) -> int:
    parts: dict[int, list[TrajectorySample]] = {}
    for b in buffer:
      for i, lane in enumerate(b.lanes):
        parts.setdefault(lane, []).append(map_fields(lambda x, i=i: x[:, i], b.segment))
    lanes = {
      lane: (self._next_index.get(lane, 0), map_fields(lambda *xs: np.concatenate(xs), *steps))
      for lane, steps in parts.items()
    }
    env_steps = (start, buffer[-1].stop)
    write_bytes(self._directory / file_name(env_steps), *encode_file(self._spec, env_steps, lanes))
    self._next_index |= {lane: first + len(steps.action) for lane, (first, steps) in lanes.items()}
    return env_steps[1]

  def _finish_file(self) -> None:
    if self._writing is None:
      return
    (writing, buffer), self._writing = self._writing, None
    try:
      self._env_steps = writing.result()
    except OSError:
      self._set_buffer([*buffer, *self._buffer])
      if self._buffer_bytes > _MAX_BUFFER_BYTES:
        self._with_gap.update(lane for b in self._buffer for lane in b.lanes)
        self._set_buffer([])
      raise

  def _restore(self, env_steps: int | None) -> tuple[int, dict[int, int]]:
    """Removes files with steps after `env_steps`.

    Returns: environment steps at the end of the last file, and the index of each lane's next step.
    """
    files = open_kept(self._directory, self._spec, env_steps)
    kept = {f.path for f in files}
    for path in sorted(self._directory.iterdir(), reverse=True):
      if _NAME.fullmatch(path.name) and path not in kept:
        path.unlink()
    if not files:
      return env_steps or 0, {}
    return files[-1].env_steps[1], {span.lane: span.stop for f in files for span in f.spans}


@dataclasses.dataclass(frozen=True)
class TrajectoryStore:
  """The headers of one or more trajectory files in order; reads their steps."""

  spec: EnvSpec
  files: tuple[TrajectoryFile, ...]

  @property
  def num_steps(self) -> int:
    """Number of steps of all lanes."""
    return sum(f.num_steps for f in self.files)

  @property
  def lane_steps(self) -> dict[int, int]:
    """Number of steps by lane."""
    out: dict[int, int] = {}
    for span in (span for f in self.files for span in f.spans):
      out[span.lane] = out.get(span.lane, 0) + span.num_steps
    return dict(sorted(out.items()))

  def read(self) -> Iterator[StoredSteps]:
    """Yields all steps, file by file. The steps of each lane are contiguous and in time order.

    Raises: UserError: a file is damaged, or has changed since the store was opened.
    """
    for info in self.files:
      for span, steps in zip(info.spans, read_steps(info), strict=True):
        yield StoredSteps(span, steps)


def write_steps(directory: Path, info: TrajectoryFile, steps: list[TrajectorySample]) -> None:
  """Writes a copy of the file `info` with other steps to a folder; `steps` has [T, …] for each span."""
  lanes = {span.lane: (span.start, part) for span, part in zip(info.spans, steps, strict=True)}
  write_bytes(directory / file_name(info.env_steps), *encode_file(info.spec, info.env_steps, lanes))


def file_name(env_steps: tuple[int, int]) -> str:
  """Returns the name of a file; `env_steps` are the run's environment steps before and after it."""
  return f"{env_steps[0]:012d}-{env_steps[1]:012d}.traj"


def open_trajectories(
  path: Path, spec: EnvSpec | None = None, max_env_steps: int | None = None
) -> TrajectoryStore:
  """Opens a folder of trajectories, a run directory or a single file. Reads only headers.

  Files with steps after `max_env_steps` are skipped. If `spec` is None, the files may be of any environment,
  but all of one.

  Raises: UserError: the folder is missing or empty, or lacks a file between two others; or a file is damaged,
    from another environment, or not a trajectory file.
  """
  files = [read_header(p) for p in _paths(path)]
  if max_env_steps is not None:
    kept = [f for f in files if f.env_steps[1] <= max_env_steps]
    if not kept:
      first = files[0].env_steps[1]
      limit = f"at or before env step {max_env_steps}; the first one ends at {first}"
      raise UserError(f"{path}: no file ends {limit}")
    files = kept
  return TrajectoryStore(files[0].spec, _check_alike(files, spec))


def open_kept(directory: Path, spec: EnvSpec, env_steps: int | None) -> tuple[TrajectoryFile, ...]:
  """Opens the files that a run keeps if it is resumed at `env_steps`; None keeps all. Changes no file.

  Raises: UserError: as `open_trajectories`, except that there may be no file; files with later steps are not
    opened.
  """
  if not directory.is_dir() or not any(_NAME.fullmatch(p.name) for p in directory.iterdir()):
    return ()
  paths = [p for p in _paths(directory) if env_steps is None or int(p.stem.partition("-")[2]) <= env_steps]
  return _check_alike([read_header(p) for p in paths], spec) if paths else ()


def _check_alike(files: list[TrajectoryFile], spec: EnvSpec | None) -> tuple[TrajectoryFile, ...]:
  """Raises UserError if a file between two others is missing, or files are of other environments."""
  _check_joined(files)
  wanted, whose = (files[0].spec, "the first file's") if spec is None else (spec, "the run's")
  for f in files:
    if (difference := first_difference(f.spec.to_dict(), wanted.to_dict(), "spec")) is not None:
      name, found, expected = difference
      raise UserError(f"{f.path}: of another environment: {name} is {found}, {whose} is {expected}")
  return tuple(files)


def _paths(path: Path) -> list[Path]:
  try:
    if path.is_file():
      return [path]
    if not path.is_dir():
      raise UserError(f"{path}: no such folder; a folder of trajectories or a run with them is needed")
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    found = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
  except (OSError, ValueError) as e:
    raise UserError(f"{str(path)!r}: cannot be read: {reason_of(e)}") from None
  if (folder / "config.yaml").exists():
    raise UserError(f"{path}: a run without trajectories; set trajectories.save=true to keep them")
  for p in found:
    if not _NAME.fullmatch(p.name):
      raise UserError(f"{p}: not a trajectory file; a folder of trajectories holds nothing else")
  if not found:
    raise UserError(f"{folder}: holds no trajectories")
  return found


def _check_joined(files: list[TrajectoryFile]) -> None:
  """Raises UserError if a file is missing between two others, or if the steps of a lane have a gap."""
  # If trajectory saving was enabled after the run had started, the first file does not start at environment
  # step 0. The step indices of its lanes do start at 0.
  stop, next_index = files[0].env_steps[0], dict[int, int]()
  for f in files:
    if f.env_steps[0] != stop:
      raise UserError(
        f"{f.path}: starts at env step {f.env_steps[0]}: the file that starts at {stop} is missing"
      )
    stop = f.env_steps[1]
    for span in f.spans:
      if span.start != next_index.get(span.lane, 0) and len(files) > 1:
        raise UserError(f"{f.path}: the steps of lane {span.lane} do not continue those of the earlier files")
      next_index[span.lane] = span.stop
