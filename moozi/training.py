"""Puts a run together: the loop or the driver, the recorder that listens, and the signals that end it."""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.io.checkpoints import (
  CheckpointInfo,
  expected_of,
  find_checkpoint,
  load_checkpoint,
  read_checkpoint_info,
)
from moozi.io.logs import setup_logging
from moozi.io.progress import make_progress
from moozi.io.run_directory import RunDirectory
from moozi.recording import Recorder
from moozi.runtime.events import Event

_log = logging.getLogger("moozi.driver")


def train(config: Config, spec: EnvSpec, run: RunDirectory) -> dict[str, Any]:
  """Trains into the run directory and returns the run's summary.

  SIGINT and SIGTERM end the run with a checkpoint; a second one ends the process at once.

  Args:
    config: the run's configuration; `runtime` chooses between one process and Ray.
    spec: the world's facts.
    run: a directory made for this run.

  Raises: UserError: Ray cannot give what the configuration asks for.
  """
  start = time.monotonic()
  state = _load_start(config, spec)
  setup_logging(run.log_path("driver"))
  display = make_progress(config.logging.progress, run.name, config.max_env_steps, config.max_wall_s)
  with _StopRequest() as stop, contextlib.closing(Recorder(config, spec, run, display, start)) as recorder:
    # Closed explicitly, so that an error in a sink also ends what the generator started.
    with contextlib.closing(_events(config, spec, run, stop, state)) as events:
      try:
        for event in events:
          recorder.observe(event)
          if stop.is_new():
            display.note("ending with a checkpoint; a second signal ends at once")
      except UserError:
        raise
      except Exception:
        _log.exception("the run failed")
        raise
    assert recorder.summary is not None, "the last event is Finished"
    return recorder.summary


def _events(
  config: Config, spec: EnvSpec, run: RunDirectory, stop: "_StopRequest", state: Any
) -> Generator[Event, None, None]:
  if config.algorithm == "ppo":
    from moozi.baselines import ppo_run

    return ppo_run.run(config, spec, stop.is_set, state)
  if config.runtime == "local":
    from moozi.runtime import loop

    return loop.run(config, spec, stop.is_set, state)
  from moozi.actors import driver

  return driver.run(config, spec, str(run.logs_path.absolute()), stop.is_set, state)


def builder_of(config: Config) -> Any:
  """The module that makes what a run of this algorithm needs outside training.

  It has `training_state_template(config, spec)` and `build_evaluator(config, spec, num_simulations)`.
  """
  if config.algorithm == "ppo":
    from moozi.baselines import ppo_run

    return ppo_run
  from moozi.runtime import build

  return build


def _load_start(config: Config, spec: EnvSpec) -> Any:
  """The TrainingState that `checkpoint.start_from` names, in NumPy; None without one."""
  if config.checkpoint.start_from is None:
    return None
  import jax

  found = find_start(config.checkpoint.start_from)
  template = builder_of(config).training_state_template(config, spec)
  return jax.device_get(load_checkpoint(found.path, template, expected_of(config, spec)))


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
