"""Loads the newest state of a run that is resumed."""

import dataclasses
import logging
import math
from typing import Any

import numpy as np

from moozi.core.config import Config
from moozi.core.errors import RunError, UserError
from moozi.core.flat_state import Entry, State, check_state, counter, number, part
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import evaluation_terms
from moozi.io.atomic_write import remove_leftovers
from moozi.io.checkpoints import (
  CheckpointInfo,
  ResumeStore,
  expected_of,
  load_checkpoint,
  read_best,
  scan_checkpoints,
  steps_of,
)
from moozi.io.lineage import Joint
from moozi.io.metrics import FAULT_PREFIX, read_metrics
from moozi.io.run_directory import RunDirectory
from moozi.io.trajectory_folder import open_kept
from moozi.run.evaluation_schedule import BEST_BOUND, has_reached
from moozi.run.events import FAULTS
from moozi.run.saved_state import check_run_state
from moozi.run.state import RunState
from moozi.training.algorithms import algorithm_of

_log = logging.getLogger("moozi.driver")
# Prefixes of the names in a resume state, as in `training.checkpoint_saver`.
_PARTS = _PROGRESS, _RECORDER, _COLLECTOR, _REPLAY = "progress", "recorder", "collector", "replay"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resumed:
  """The state that a run starts from, if any. In a new run, `recorder` is None."""

  state: RunState | None
  recorder: State | None
  store: ResumeStore  # where resume states are written
  name: str = ""  # name of the checkpoint
  skipped: tuple[str, ...] = ()  # newer checkpoints that cannot be used, with reasons
  joints: tuple[Joint, ...] = ()  # of a new run that starts from a checkpoint

  def restore_best(self, config: Config, run: RunDirectory) -> None:
    """Restores the bound of the best checkpoint, which may have been recorded after the state was saved.

    Resets the bound if there is no best checkpoint, if it is later than the state, because the resumed run
    repeats those steps, or if it was evaluated with other settings, such as a weaker opponent.
    """
    if self.state is None or self.recorder is None or not config.checkpoint.keep_best:
      return
    best = read_best(run.checkpoints_path)
    if (
      best is None
      or steps_of(best.name) > int(self.recorder["env_steps"])
      or best.evaluation != evaluation_terms(config)
    ):
      self.state.progress[BEST_BOUND] = -math.inf
    else:
      self.state.progress[BEST_BOUND] = best.bound


def load_resumed(config: Config, spec: EnvSpec, run: RunDirectory) -> Resumed:
  """Loads the newest usable state of a run. The caller must have claimed the run.

  A run that was stopped or killed before its final evaluation can be resumed, even if it has reached its
  limit of steps or time.

  Raises: UserError: no state can be used, metrics.jsonl or the trajectories are damaged, or the run is
    finished, and its limits and `evaluation.stop_value` allow no further step.
  """
  for folder in (run.checkpoints_path, run.resume_path):
    remove_leftovers(folder)
  found = load_saved(config, spec, run)
  # Damaged files are refused before anything is changed.
  if run.metrics_path.exists():
    read_metrics(run.metrics_path)
  recorder = found.recorder or {}
  if config.trajectories.save:
    writer = part(recorder, "trajectories")
    env_steps = writer["stop"] if writer else recorder["env_steps"]
    open_kept(run.trajectories_path, spec, int(env_steps))
  trained_s = run.trained_s_at_end(int(recorder["env_steps"]), int(recorder["learner_steps"]))
  # A run that ended by max_wall_s may have made all its steps, and not all their updates.
  has_all_updates = trained_s is not None and run.read_summary()["reason"] != "max_wall_s"
  if has_all_updates and recorder["env_steps"] >= config.max_env_steps:
    raise UserError(
      f"{run.path}: has made {recorder['env_steps']:,} environment steps, and max_env_steps="
      f"{config.max_env_steps}; give a larger one to resume"
    )
  progress = {} if found.state is None else found.state.progress
  if trained_s is not None and has_reached(config, progress):
    raise UserError(
      f"{run.path}: an evaluation has reached evaluation.stop_value={config.evaluation.stop_value:g}; give a "
      "larger one, or null, to resume"
    )
  # The clock of the resumed run also counts the evaluation at the end.
  wall_s = max(trained_s or 0.0, 0.0 if found.state is None else found.state.wall_s)
  if trained_s is not None and config.max_wall_s is not None and wall_s >= config.max_wall_s:
    raise UserError(
      f"{run.path}: has taken {wall_s:.0f} s, and max_wall_s={config.max_wall_s:g}; "
      "give a larger one to resume"
    )
  return found


def load_saved(config: Config, spec: EnvSpec, run: RunDirectory) -> Resumed:
  """Loads the newest usable state of a run, with the reasons why newer ones cannot be used. Changes no file.

  Raises: UserError: no state can be used.
  """
  found, skipped = _newest(config, spec, run)
  if found is None:
    if skipped:
      raise UserError(f"{run.path}: no checkpoint can be resumed: {skipped[0]}")
    raise UserError(
      f"{run.path}: has no state to resume; checkpoint.start_from={run.path} starts a new run with its "
      "last parameters"
    )
  return dataclasses.replace(found, skipped=tuple(skipped))


def newest_state(
  config: Config, spec: EnvSpec, run: RunDirectory, with_replay: bool = False
) -> RunState | None:
  """Loads the newest usable state, for a rollback or a restarted actor; None if none has been saved.

  Replay, which can take most of the memory, is loaded only with `with_replay`.

  Raises: RunError: no saved state can be loaded.
  """
  found, skipped = _newest(config, spec, run, with_replay)
  if found is None and skipped:
    # A checkpoint that was saved meanwhile may have replaced those of the first attempt.
    found, skipped = _newest(config, spec, run, with_replay)
    if found is None and skipped:
      raise RunError(f"{run.path}: no checkpoint can be loaded: {skipped[0]}")
  for text in skipped:
    _log.warning("skipped %s", text)
  return None if found is None else found.state


def _newest(
  config: Config, spec: EnvSpec, run: RunDirectory, with_replay: bool = True
) -> tuple[Resumed | None, list[str]]:
  """Loads the newest complete state; also returns why newer states cannot be used."""
  store, skipped = ResumeStore(run.resume_path), []
  found, damaged = scan_checkpoints(run.checkpoints_path)
  resumable, damaged_states = scan_checkpoints(run.resume_path)
  damaged |= damaged_states
  names = {state.name for state in resumable}
  complete = {info.name: info for info in found if info.name in names}
  for name in sorted(complete.keys() | damaged.keys(), key=steps_of, reverse=True):
    if name in damaged:
      skipped.append(f"{name}: {damaged[name]}")
      continue
    info = complete[name]
    try:
      if info.has_parameters_only:
        raise UserError("it has parameters only")
      training = load_training(config, spec, info)
      state, recorder = _read_resume_state(config, spec, store, info, training, with_replay)
    except (UserError, ValueError) as e:
      skipped.append(f"{info.name}: {e}")
      continue
    return Resumed(state=state, recorder=recorder, store=store, name=info.name), skipped
  return None, skipped


def load_training(config: Config, spec: EnvSpec, info: CheckpointInfo) -> Any:
  template = algorithm_of(config).training_state_template(config, spec)
  return load_checkpoint(info.path, template, expected_of(config, spec))


def _read_resume_state(
  config: Config, spec: EnvSpec, store: ResumeStore, info: CheckpointInfo, training: Any, with_replay: bool
) -> tuple[RunState, State]:
  """Loads and checks a resume state. The rest of the code relies on this check.

  Raises: UserError: the state is damaged, or belongs to another checkpoint. ValueError: an entry is missing,
    not expected or invalid; the message names it.
  """
  saved = store.load(info.name, with_replay)
  state, recorder = saved.head, part(saved.head, _RECORDER)
  unknown = {name for name in state if "/" not in name or name.partition("/")[0] not in _PARTS}
  if unknown:
    raise ValueError(f"{min(unknown)} is not expected")
  _check_recorder(recorder)
  numbers = sorted({name.split("/")[1] for name in state if name.startswith(f"{_COLLECTOR}/")})
  if numbers != sorted(str(i) for i in range(len(numbers))):
    raise ValueError(f"{_COLLECTOR}/{len(numbers) - 1} is missing")
  collectors = tuple(part(state, f"{_COLLECTOR}/{i}") for i in range(len(numbers)))
  replay, head = None, part(state, _REPLAY)
  if len(saved.generations):
    replay = dataclasses.replace(saved, head=head)
  elif head and with_replay:
    raise ValueError("replay has no blocks")
  loaded = RunState(training=training, progress=part(state, _PROGRESS), replay=replay, collectors=collectors)
  check_run_state(loaded, config, spec, with_replay)
  counts = loaded.env_steps, int(recorder["env_steps"]), int(recorder["learner_steps"])
  if counts != (info.env_steps, info.env_steps, info.learner_steps):
    raise UserError("its resume state belongs to another checkpoint")
  return loaded, recorder


def _check_recorder(state: State) -> None:
  """Checks what `Recorder` saves. Returns and figures of evaluations may be NaN: a faulty reward may be."""
  episodes = np.size(state.get("recent_returns", ()))
  entries = {
    "env_steps": counter(),
    "learner_steps": counter(),
    "wall_s": number(0, 1e12),
    "recent_returns": Entry("float64", (None,), may_be_nan=True),
    "recent_lengths": Entry("float64", (episodes,), low=0),
    "staleness": Entry("float64", (2,), low=-1e300, high=1e300),
    "num_samples": counter(),
    "num_actions": counter(),
    "learning_since": number(-1),
    "num_disk_failures": counter(),
  }
  entries |= dict.fromkeys((FAULT_PREFIX + kind for kind in FAULTS), counter())
  # Other kinds of faults, such as one for each non-finite term, occur only if there were any.
  entries |= {name: counter() for name in state if name.startswith(FAULT_PREFIX)}
  if part(state, "trajectories"):
    entries |= {"trajectories/stop": counter(), "trajectories/with_gap": Entry("int64", (None,), low=0)}
  if part(state, "last_test"):
    entries |= {
      f"last_test/{name}": Entry("float", may_be_nan=True) for name in ("return_mean", "return_std")
    }
    entries |= {f"last_test/{name}": number(0, 2**53) for name in ("episodes", "env_steps")}
    if "last_test/score" in state:
      entries["last_test/score"] = Entry("float", may_be_nan=True)
  check_state(state, entries, f"{_RECORDER}/")
