"""Trains into a run directory: runs the algorithm, records its events, and handles stop signals."""

import contextlib
import itertools
import logging
import os
import signal
import time
from types import FrameType
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.io.checkpoints import drop_later
from moozi.io.logs import setup_logging
from moozi.io.progress import make_progress
from moozi.io.run_directory import RunDirectory, save_resumed_config
from moozi.run import signals
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of
from moozi.training.offline import load_stored
from moozi.training.recorder import Recorder, phase_notes
from moozi.training.resume import Resumed, load_start, newest_state

_log = logging.getLogger("moozi.driver")


def train(config: Config, spec: EnvSpec, run: RunDirectory, resumed: Resumed | None = None) -> dict[str, Any]:
  """Trains into the run directory and returns the run's summary.

  SIGINT and SIGTERM end the run with a checkpoint; a second signal ends it immediately. The caller must have
  claimed the directory. `resumed` is the result of `load_resumed`; None starts a new run.

  Raises: UserError: Ray lacks what the configuration requests. RunError: the run cannot continue.
  """
  setup_logging(run.log_path("driver"))
  resumed = resumed or load_start(config, spec, run)
  resumed.forget_later_best(config, run)
  store = resumed.store
  start = time.monotonic() - (0.0 if resumed.recorder is None else float(resumed.recorder["wall_s"]))
  display = make_progress(config.logging.progress, run.name, config.max_env_steps, config.max_wall_s)
  # The generator is closed explicitly, so that an error in a sink also closes environments and actors.
  with contextlib.closing(display), _StopRequest() as stop, signals.acknowledged():
    try:
      inputs = RunInputs(
        config,
        spec,
        should_stop=stop.is_set,
        state=resumed.state,
        saved_blocks=lambda: store.known,
        latest=lambda: newest_state(config, spec, run),
        stored=load_stored(config, spec),
        log_dir=str(run.logs_path.absolute()),
        on_phase=phase_notes(display, start),
      )
      with contextlib.closing(algorithm_of(config).run(inputs)) as events:
        # If the run is refused here, its folder stays unchanged.
        first = next(events)
        if resumed.recorder is not None:
          env_steps = int(resumed.recorder["env_steps"])
          save_resumed_config(run, config, env_steps)
          drop_later((run.checkpoints_path, run.resume_path), env_steps)
        recorder = Recorder(config, spec, run, display, start, resumed)
        with contextlib.closing(recorder):
          for event in itertools.chain([first], events):
            recorder.observe(event)
            if stop.is_new():
              display.note("ending with a checkpoint; a second signal ends immediately")
    except UserError as error:
      # Ray wraps an error of another process and adds the traceback as text.
      _log.error("the run ends: %s", getattr(error, "cause", error))
      raise
    except Exception:
      _log.exception("the run failed")
      raise
    assert recorder.summary is not None, "the last event is Finished"
    return recorder.summary


class _StopRequest:
  """Is set by the first SIGINT or SIGTERM; a second signal ends the process."""

  def __init__(self) -> None:
    self._is_set = self._is_shown = False
    self._saved: dict[int, Any] = {}

  def is_set(self) -> bool:
    """Whether a signal arrived."""
    return self._is_set

  def is_new(self) -> bool:
    """Returns True once after the signal. The signal handler must not use the display, which takes a lock."""
    is_new = self._is_set and not self._is_shown
    self._is_shown = self._is_set
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
