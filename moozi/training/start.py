"""Trains a run: runs the algorithm, and records its events in the run directory."""

import contextlib
import functools
import itertools
import logging
import shlex
import time
from collections.abc import Generator
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import ProcessLostError, RunError, UserError, reason_of
from moozi.core.spec import EnvSpec
from moozi.io.checkpoints import drop_later, list_checkpoints
from moozi.io.lineage import write_lineage
from moozi.io.logs import log_to
from moozi.io.progress import make_progress
from moozi.io.run_directory import RunDirectory, save_resumed_config
from moozi.run.events import Event
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of
from moozi.training.network_size import network_size
from moozi.training.offline import load_stored
from moozi.training.recorder import Recorder, phase_notes
from moozi.training.resume import Resumed, newest_state
from moozi.training.start_from import load_start

_log = logging.getLogger("moozi.driver")


class Stop:
  """A request to end a run with a checkpoint.

  Attributes:
    note: the line that the run's display shows after the request.
  """

  def __init__(self) -> None:
    self.note = "ending with a checkpoint"
    self._is_set = self._is_shown = False

  def set(self) -> None:
    """Makes the request. Signal handlers may call this, because it does not use the display's lock."""
    self._is_set = True

  def is_set(self) -> bool:
    """Returns whether the request was made."""
    return self._is_set

  def is_new(self) -> bool:
    """Returns True in the first call after the request, else False."""
    is_new = self._is_set and not self._is_shown
    self._is_shown = self._is_set
    return is_new


def train_events(
  config: Config, spec: EnvSpec, run: RunDirectory, resumed: Resumed | None, stop: Stop
) -> Generator[Event, None, dict[str, Any]]:
  """Trains, and yields each event after it is recorded in the run directory; the last is Finished.

  The caller has checked the run (`training.checks`) and claimed the directory, and holds it
  (`RunDirectory.held`), so that the run continues in a renamed folder.

  Args:
    resumed: the result of `load_resumed`; None starts a new run.
    stop: ends the run with a checkpoint when it is set.

  Returns: the run's summary.
  Raises: UserError: the Ray cluster is too small for the configuration.
    RunError: the run cannot continue, or its last checkpoint cannot be written.
  """
  with log_to(run.log_path("driver")):
    resumed = resumed or load_start(config, spec, run)
    resumed.restore_best(config, run)
    store = resumed.store
    store.move_to(run.resume_path)
    began = time.monotonic()
    start = began - (0.0 if resumed.recorder is None else float(resumed.recorder["wall_s"]))
    display = make_progress(config.logging.progress, run.name, config.max_env_steps, config.max_wall_s)
    # The generator is closed explicitly, so that an error in a sink also closes environments and actors.
    with contextlib.closing(display):
      try:
        inputs = RunInputs(
          config,
          spec,
          should_stop=stop.is_set,
          state=resumed.state,
          saved_blocks=lambda: store.known,
          latest=functools.partial(newest_state, config, spec, run),
          stored=load_stored(config, spec),
          log_dir=str((run.path / "logs").absolute()),  # of other processes, for which `run` is not held
          on_phase=phase_notes(display, began),
        )
        algorithm = algorithm_of(config)
        if (size := network_size(config, spec, with_update=False)) is not None:
          _log.info(size.describe())
          display.note(size.describe())
        with contextlib.closing(algorithm.run(inputs)) as events:
          # An algorithm refuses a run before its first event, so the folder of a refused run stays unchanged.
          first = next(events)
          if resumed.recorder is not None:
            env_steps = int(resumed.recorder["env_steps"])
            save_resumed_config(run, config, env_steps)
            drop_later((run.checkpoints_path, run.resume_path), env_steps)
          with contextlib.ExitStack() as stack:
            try:
              if resumed.joints:
                write_lineage(run.lineage_path, resumed.joints)
              recorder = Recorder(config, spec, run, display, start, resumed)
              stack.callback(recorder.close)
              if resumed.recorder is not None:
                run.summary_path.unlink(missing_ok=True)  # the run has not ended any more
            except OSError as error:
              raise RunError(f"{run.path}: cannot be written: {reason_of(error)}") from error
            for event in itertools.chain([first], events):
              recorder.observe(event)
              if stop.is_new():
                display.note(stop.note)
              yield event
          if recorder.unsaved is not None:
            raise RunError(f"{run.where()}: {recorder.unsaved}; {_describe_newest(run)}")
      except ProcessLostError as error:
        # The recorder is closed by now, so the last checkpoint is complete.
        again = ProcessLostError(f"{error}; {_describe_newest(run)}")
        _log.error("the run ends: %s", again)
        raise again from error
      except UserError as error:
        # Ray wraps an error of another process and adds the traceback as text.
        _log.error("the run ends: %s", getattr(error, "cause", error))
        raise
      except Exception:
        _log.exception("the run failed")
        raise
    assert recorder.summary is not None, "the last event is Finished"
    return recorder.summary


def _describe_newest(run: RunDirectory) -> str:
  """Returns the newest checkpoint of a run that can be resumed, and how to resume it, as text."""
  saved = list_checkpoints(run.resume_path)
  if not saved:
    return f"{run.where()} has no checkpoint yet, so it cannot be resumed"
  command = shlex.join(["moozi", "train", "--resume", str(run.where())])
  return f"the newest checkpoint is {saved[-1].name}; continue with: {command}"
