"""Puts a run together: the loop or the driver, the recorder that listens, and the signals that end it."""

import contextlib
import dataclasses
import itertools
import logging
import os
import signal
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.flat_state import State, part, prefixed
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.io.checkpoints import (
  CheckpointInfo,
  ResumeStore,
  drop_later,
  expected_of,
  find_checkpoint,
  load_checkpoint,
  mend_checkpoints,
  read_best,
  read_checkpoint_info,
  scan_checkpoints,
  steps_of,
)
from moozi.io.logs import setup_logging
from moozi.io.progress import make_progress
from moozi.io.run_directory import RunDirectory, save_resumed_config
from moozi.io.trajectories import open_trajectories
from moozi.replay.mixture import StoredTrajectories
from moozi.replay.snapshot import ReplaySnapshot
from moozi.run.evaluation_schedule import Best
from moozi.run.events import Event
from moozi.run.state import RunState
from moozi.training.recorder import Recorder

_log = logging.getLogger("moozi.driver")
# Each lane of stored steps takes the room of the longest: a stranger's small file could ask for any amount.
_SLOTS_A_STEP = 4
_FREE_SLOTS = 1 << 25  # a gigabyte where nothing is in them


def train(
  config: Config, spec: EnvSpec, run: RunDirectory, resumed: "Resumed | None" = None
) -> dict[str, Any]:
  """Trains into the run directory and returns the run's summary.

  SIGINT and SIGTERM end the run with a checkpoint; a second one ends the process at once.

  Args:
    config: the run's configuration; `runtime` chooses between one process and Ray.
    spec: the environment's facts.
    run: a directory made for this run, which the caller has claimed.
    resumed: what `load_resumed` found in it; the run goes on from there.

  Raises: UserError: Ray cannot give what the configuration asks for. RunError: the run cannot go on.
  """
  setup_logging(run.log_path("driver"))
  if resumed is None:
    resumed = Resumed(state=_load_start(config, spec), recorder=None, store=ResumeStore(run.resume_path))
  start = time.monotonic()
  if resumed.recorder is not None:
    start -= float(resumed.recorder["wall_s"])
    _forget_later_best(config, run, resumed)
  display = make_progress(config.logging.progress, run.name, config.max_env_steps, config.max_wall_s)
  # Closed explicitly, so that an error in a sink also ends what the generator started.
  with (
    contextlib.closing(display),
    _StopRequest() as stop,
    contextlib.closing(_events(config, spec, run, stop, resumed)) as events,
  ):
    try:
      # A run that is refused here leaves its folder as it was.
      first = next(events)
      if resumed.recorder is not None:
        env_steps = int(resumed.recorder["env_steps"])
        save_resumed_config(run, config, env_steps)
        drop_later((run.checkpoints_path, run.resume_path), env_steps)
      recorder = Recorder(config, spec, run, display, start, resumed.store, resumed.recorder)
      with contextlib.closing(recorder):
        for event in itertools.chain([first], events):
          recorder.observe(event)
          if stop.is_new():
            display.note("ending with a checkpoint; a second signal ends at once")
    except UserError as error:
      # One from another process comes wrapped by Ray, with that process's traceback for its text.
      _log.error("the run ends: %s", getattr(error, "cause", error))
      raise
    except Exception:
      _log.exception("the run failed")
      raise
    assert recorder.summary is not None, "the last event is Finished"
    return recorder.summary


def _forget_later_best(config: Config, run: RunDirectory, resumed: "Resumed") -> None:
  """Where the best checkpoint is of steps that a resumed run makes again, its next evaluation is the best."""
  assert resumed.state is not None
  assert resumed.recorder is not None
  best = read_best(run.checkpoints_path)
  is_left = best is not None and steps_of(best) <= int(resumed.recorder["env_steps"])
  if config.checkpoint.keep_best and not is_left:
    resumed.state.progress.update(prefixed("best", Best().get_state()))


def _events(
  config: Config, spec: EnvSpec, run: RunDirectory, stop: "_StopRequest", resumed: "Resumed"
) -> Generator[Event, None, None]:
  def saved_blocks() -> Any:
    return resumed.store.known

  def latest() -> RunState | None:
    return newest_state(config, spec, run)

  if config.algorithm == "ppo":
    from moozi.baselines.ppo import run as ppo_run

    return ppo_run.run(config, spec, stop.is_set, resumed.state, latest)
  if config.runtime == "local":
    from moozi.run import local as loop

    stored = load_stored(config, spec)
    return loop.run(config, spec, stop.is_set, resumed.state, saved_blocks, latest, stored)
  from moozi.actors import driver

  logs = str(run.logs_path.absolute())
  stored = load_stored(config, spec)
  return driver.run(config, spec, logs, stop.is_set, resumed.state, saved_blocks, latest, stored)


def load_stored(config: Config, spec: EnvSpec) -> StoredTrajectories | None:
  """The trajectories that `offline.trajectories` names; None without them.

  Raises: UserError: they cannot be read, are of another environment, too few to learn from, or in lanes of
    too
    different lengths.
  """
  offline, targets = config.offline, config.targets
  if offline.trajectories is None:
    return None
  store = open_trajectories(Path(offline.trajectories), spec, offline.max_env_steps)
  needed = targets.history_length + targets.unroll_steps + targets.n_step
  if max(store.lane_steps.values()) <= needed:
    raise UserError(
      f"offline.trajectories={offline.trajectories}: no lane has more than {needed} steps "
      "(history + unroll + n_step)"
    )
  num_lanes, longest = len(store.lane_steps), max(store.lane_steps.values())
  if num_lanes * longest > max(_FREE_SLOTS, _SLOTS_A_STEP * store.num_steps):
    raise UserError(
      f"offline.trajectories={offline.trajectories}: {num_lanes:,} lanes, the longest of {longest:,} steps, "
      f"hold {store.num_steps:,} steps; each takes the room of the longest: their lengths must be more equal"
    )

  def read() -> Iterator[tuple[int, TrajectorySample]]:
    for part_of_lane in store.read():
      yield part_of_lane.span.lane, part_of_lane.steps

  return StoredTrajectories(where=str(offline.trajectories), lane_steps=store.lane_steps, read=read)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resumed:
  """What a run goes on from.

  Attributes:
    state: of the run; None: it begins.
    recorder: the running figures; None: they begin.
    store: where the next resume states go.
    name: of the checkpoint.
    passed_over: newer checkpoints that could not be used, with the reason.
  """

  state: RunState | None
  recorder: State | None
  store: ResumeStore
  name: str = ""
  passed_over: tuple[str, ...] = ()


def load_resumed(config: Config, spec: EnvSpec, run: RunDirectory) -> Resumed:
  """The newest whole state of a run, which the caller has claimed.

  A run that was stopped or killed when it had all its steps or all its time, before it was evaluated, goes on
  to its end; so does an unfinished one that is given less than it has had.

  Raises: UserError: there is none, or the run came to its own end and is given no more to do.
  """
  for folder in (run.checkpoints_path, run.resume_path):
    mend_checkpoints(folder)
  found, passed_over = _newest(config, spec, run)
  if found is None and passed_over:
    raise UserError(f"{run.path}: no checkpoint can be used to go on: {passed_over[0]}")
  if found is None:
    raise UserError(
      f"{run.path}: holds nothing to go on from; checkpoint.start_from={run.path} begins a new run with its "
      "last parameters"
    )
  recorder = found.recorder or {}
  trained_s = run.trained_s_at_end(int(recorder["env_steps"]), int(recorder["learner_steps"]))
  if trained_s is not None and recorder["env_steps"] >= config.max_env_steps:
    raise UserError(
      f"{run.path}: has made {recorder['env_steps']:,} environment steps, and max_env_steps="
      f"{config.max_env_steps}; give a larger one to go on"
    )
  if trained_s is not None and config.max_wall_s is not None and trained_s >= config.max_wall_s:
    raise UserError(
      f"{run.path}: has taken {trained_s:.0f} s, and max_wall_s={config.max_wall_s:g}; "
      "give a larger one to go on"
    )
  return dataclasses.replace(found, passed_over=tuple(passed_over))


def newest_state(config: Config, spec: EnvSpec, run: RunDirectory) -> RunState | None:
  """What an actor that died goes on from; None where nothing whole was saved yet."""
  found, passed_over = _newest(config, spec, run)
  for text in passed_over:
    _log.warning("passed over %s", text)
  return None if found is None else found.state


def _newest(config: Config, spec: EnvSpec, run: RunDirectory) -> tuple[Resumed | None, list[str]]:
  """The newest whole state, and why newer ones are not."""
  import jax

  store, passed_over = ResumeStore(run.resume_path), []
  template = builder_of(config).training_state_template(config, spec)
  found, damaged = scan_checkpoints(run.checkpoints_path)
  resumable, damaged_states = scan_checkpoints(run.resume_path)
  damaged |= damaged_states
  names = {state.name for state in resumable}
  whole = {info.name: info for info in found if info.name in names}
  for name in sorted(whole.keys() | damaged.keys(), key=steps_of, reverse=True):
    if name in damaged:
      passed_over.append(f"{name}: {damaged[name]}")
      continue
    info = whole[name]
    try:
      training = jax.device_get(load_checkpoint(info.path, template, expected_of(config, spec)))
      state, recorder = _read_resume_state(store, info, training)
    except (UserError, ValueError, KeyError, TypeError) as e:
      passed_over.append(f"{info.name}: {e}")
      continue
    return Resumed(state=state, recorder=recorder, store=store, name=info.name), passed_over
  return None, passed_over


def _read_resume_state(store: ResumeStore, info: CheckpointInfo, training: Any) -> tuple[RunState, State]:
  saved = store.load(info.name)
  state, recorder = saved.state, part(saved.state, "recorder")
  # Whoever goes on from it reads these as numbers: here one that has others is passed over.
  _, learner_steps, _ = (float(recorder[name]) for name in ("env_steps", "learner_steps", "wall_s"))
  if learner_steps != info.learner_steps:
    raise UserError("its resume state is of another moment")
  collectors = itertools.takewhile(bool, (part(state, f"collector/{i}") for i in itertools.count()))
  replay = None
  if saved.generations is not None:
    replay = ReplaySnapshot(head=part(state, "replay"), generations=saved.generations, blocks=saved.blocks)
  progress = part(state, "progress")
  return RunState(training=training, progress=progress, replay=replay, collectors=tuple(collectors)), recorder


def builder_of(config: Config) -> Any:
  """The module that makes what a run of this algorithm needs outside training.

  It has `training_state_template(config, spec)` and `build_evaluator(config, spec, num_simulations)`.
  """
  if config.algorithm == "ppo":
    from moozi.baselines.ppo import run as ppo_run

    return ppo_run
  from moozi.run import build

  return build


def _load_start(config: Config, spec: EnvSpec) -> RunState | None:
  """The training state that `checkpoint.start_from` names, in NumPy; None without one."""
  if config.checkpoint.start_from is None:
    return None
  import jax

  found = find_start(config.checkpoint.start_from)
  template = builder_of(config).training_state_template(config, spec)
  return RunState(training=jax.device_get(load_checkpoint(found.path, template, expected_of(config, spec))))


def find_start(path: str) -> CheckpointInfo:
  """The checkpoint in a folder that is one, or the last one of a run.

  Raises: UserError: neither.
  """
  if (Path(path) / "checkpoints").is_dir():
    return find_checkpoint(RunDirectory.open(path).checkpoints_path)
  return read_checkpoint_info(Path(path))


class _StopRequest:
  """Set by the first SIGINT or SIGTERM; the second one ends the process."""

  def __init__(self) -> None:
    self._is_set = False
    self._is_told = False
    self._saved: dict[int, Any] = {}

  def is_set(self) -> bool:
    """Whether a signal came."""
    return self._is_set

  def is_new(self) -> bool:
    """True once, after the signal came: the handler itself must not touch the display, which holds a lock."""
    is_new = self._is_set and not self._is_told
    self._is_told = self._is_told or is_new
    return is_new

  def __enter__(self) -> "_StopRequest":
    for number in (signal.SIGINT, signal.SIGTERM):
      self._saved[number] = signal.signal(number, self._on_signal)
    return self

  def __exit__(self, *_: object) -> None:
    for number, handler in self._saved.items():
      signal.signal(number, handler)

  def _on_signal(self, number: int, frame: FrameType | None) -> None:
    if self._is_set:
      os._exit(128 + number)
    self._is_set = True
