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
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of
from moozi.training.offline import load_stored
from moozi.training.recorder import Recorder
from moozi.training.resume import Resumed, load_start, newest_state

_log = logging.getLogger("moozi.driver")


def train(config: Config, spec: EnvSpec, run: RunDirectory, resumed: Resumed | None = None) -> dict[str, Any]:
  """Trains into the run directory and returns the run's summary.

  SIGINT, SIGTERM and SIGHUP (a closed terminal) end the run with a checkpoint; a second signal ends it
  immediately. The caller must have claimed the directory. `resumed` is the result of `load_resumed`; None
  starts a new run.

  Raises: UserError: Ray lacks what the configuration requests. RunError: the run cannot continue.
  """
  _check_learns(config)
  setup_logging(run.log_path("driver"))
  resumed = resumed or load_start(config, spec, run)
  resumed.forget_later_best(config, run)
  store = resumed.store
  start = time.monotonic() - (0.0 if resumed.recorder is None else float(resumed.recorder["wall_s"]))
  display = make_progress(config.logging.progress, run.name, config.max_env_steps, config.max_wall_s)
  # The generator is closed explicitly, so that an error in a sink also closes environments and actors.
  with contextlib.closing(display), _StopRequest() as stop:
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


def _check_learns(config: Config) -> None:
  """Raises UserError if the run would end before its first update."""
  least = config.replay.min_steps_to_learn
  if config.algorithm == "muzero" and config.num_acting_workers and config.max_env_steps < least:
    raise UserError(
      f"max_env_steps={config.max_env_steps}: must be at least replay.min_steps_to_learn={least}, "
      "where learning starts; raise the first or lower the second"
    )


class _StopRequest:
  """Set by the first SIGINT, SIGTERM or SIGHUP; the second signal ends the process."""

  def __init__(self) -> None:
    self._is_set = self._is_shown = False
    self._saved: dict[int, Any] = {}
    # Looked up now, because a closed terminal is no terminal anymore.
    self._terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

  def is_set(self) -> bool:
    """Whether a signal arrived."""
    return self._is_set

  def is_new(self) -> bool:
    """Returns True once after the signal. The signal handler must not use the display, which takes a lock."""
    is_new = self._is_set and not self._is_shown
    self._is_shown = self._is_set
    return is_new

  def __enter__(self) -> "_StopRequest":
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
      number = getattr(signal, name, None)
      # nohup ignores SIGHUP so that the run survives its terminal.
      if number is not None and (name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN):
        self._saved[number] = signal.signal(number, self._on_signal)
    return self

  def __exit__(self, *_: object) -> None:
    for number, handler in self._saved.items():
      signal.signal(number, handler)

  def _on_signal(self, number: int, frame: FrameType | None) -> None:
    if number == getattr(signal, "SIGHUP", None):
      self._leave_terminal()
    if self._is_set:
      os._exit(128 + number)
    self._is_set = True

  def _leave_terminal(self) -> None:
    """Redirects output that went to a closed terminal, where writing raises."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in self._terminals:
      os.dup2(null, descriptor)
