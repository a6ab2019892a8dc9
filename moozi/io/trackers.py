"""Writes the scalars of a run to experiment trackers: Weights & Biases and MLflow. Both are off by default.

A tracker receives only the configuration, the ticks' scalars, the final summary and the run's name: no code,
no Git state and no console output. No tracker uses the network unless its own environment variable is set:
`WANDB_MODE=online`, or an address in `MLFLOW_TRACKING_URI`. A thread writes to the trackers, so that a slow
tracker does not delay the run's steps. A failing tracker does not end the run.
"""

import contextlib
import importlib.util
import json
import math
import os
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from moozi.core.config import Config
from moozi.core.text import missing_package
from moozi.io.atomic_write import write_text
from moozi.io.config import config_to_dict
from moozi.io.plain_data import read_json_object
from moozi.io.run_directory import RunDirectory, flatten_settings
from moozi.io.sinks import SinkGuard

PROJECT = "moozi"
"""Name of the W&B project and the MLflow experiment; WANDB_PROJECT and MLFLOW_EXPERIMENT_NAME replace it."""

_MAX_PENDING = 1000
_CLOSE_S = 60.0
_MAX_BATCH = 100  # MLflow's limit of parameters in one call
# In trackers.json until the settings are written, after an attempt that failed in between.
_PENDING = "mlflow_settings"
_MAX_PARAMETER = 6000  # MLflow's limit of characters


class Tracker(Protocol):
  """An experiment tracker. Its methods may raise any exception."""

  def write(self, scalars: Mapping[str, float], env_steps: int) -> None:
    """Writes the scalars of one tick."""

  def finish(self, summary: Mapping[str, Any] | None) -> None:
    """Writes the final summary, None if the run has none, and closes the tracker."""


class WandbTracker:
  """Writes to Weights & Biases.

  Unless WANDB_MODE is set, it writes offline, to the folder `wandb` beside the run. `wandb sync` uploads
  that folder.
  """

  def __init__(self, config: Config, run: RunDirectory) -> None:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    identifier = _saved_id(run, "wandb") or uuid.uuid4().hex[:12]
    _save_ids(run, {"wandb": identifier})
    settings = wandb.Settings(
      mode=os.environ.get("WANDB_MODE", "offline"),
      console="off",
      disable_code=True,
      disable_git=True,
      host="",
      silent=True,
      symlink=False,
      x_disable_machine_info=True,
      x_disable_meta=True,
      x_disable_stats=True,
      x_save_requirements=False,
    )
    self._run = wandb.init(
      project=os.environ.get("WANDB_PROJECT", PROJECT),
      name=run.path.resolve().name,
      id=identifier,
      resume="allow" if settings.mode == "online" else None,
      dir=str(run.path.absolute().parent),
      config=config_to_dict(config),
      settings=settings,
    )

  def write(self, scalars: Mapping[str, float], env_steps: int) -> None:
    self._run.log(dict(scalars), step=env_steps)

  def finish(self, summary: Mapping[str, Any] | None) -> None:
    self._run.summary.update(flatten_settings(summary or {}))
    self._run.finish()


class MlflowTracker:
  """Writes to MLflow: to the database `mlflow.db` beside the run, unless MLFLOW_TRACKING_URI is set."""

  def __init__(self, config: Config, run: RunDirectory) -> None:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    folder = run.path.absolute().parent
    self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db"))
    self._metric = Metric
    found = _saved_id(run, "mlflow")
    if found is not None:
      self._client.update_run(found, status="RUNNING")
      self._id = found
      if _PENDING in _read_ids(run):
        self._write_settings(run, config, Param)
      return
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    known = self._client.get_experiment_by_name(name)
    experiment = self._client.create_experiment(name) if known is None else known.experiment_id
    created = self._client.create_run(experiment, run_name=run.path.resolve().name)
    self._id = created.info.run_id
    # Saved before the settings, so that the attempt after a failure below does not start another MLflow run.
    _save_ids(run, {"mlflow": self._id, _PENDING: "true"})
    self._write_settings(run, config, Param)

  def _write_settings(self, run: RunDirectory, config: Config, param: Any) -> None:
    settings = flatten_settings(config_to_dict(config))
    params = [param(key, str(value)[:_MAX_PARAMETER]) for key, value in settings.items()]
    for begin in range(0, len(params), _MAX_BATCH):
      self._client.log_batch(self._id, params=params[begin : begin + _MAX_BATCH])
    _save_ids(run, {_PENDING: None})

  def write(self, scalars: Mapping[str, float], env_steps: int) -> None:
    now = int(time.time() * 1000)
    # MLflow allows only these characters in names.
    names = {re.sub(r"[^\w\-. :/]", "_", name): value for name, value in scalars.items()}
    metrics = [self._metric(name, value, now, env_steps) for name, value in names.items()]
    self._client.log_batch(self._id, metrics=metrics)

  def finish(self, summary: Mapping[str, Any] | None) -> None:
    flat = flatten_settings(summary or {})
    self.write({f"summary/{key}": value for key, value in _numbers(flat)}, int(flat.get("env_steps", 0)))
    for key, value in flat.items():
      if isinstance(value, str):
        self._client.set_tag(self._id, f"summary.{key}", value)
    self._client.set_terminated(self._id, "KILLED" if summary is None else "FINISHED")


TRACKERS: dict[str, Callable[[Config, RunDirectory], Tracker]] = {
  "wandb": WandbTracker,
  "mlflow": MlflowTracker,
}
"""Trackers by name, which is also the key in the section `logging`, the package, and MooZi's extra."""


def check_trackers(config: Config) -> None:
  """Raises UserError if the package of a requested tracker is not installed."""
  for name in _requested(config):
    if importlib.util.find_spec(name) is None:
      raise missing_package(f"logging.{name}=true", name)


def _requested(config: Config) -> list[str]:
  return [name for name in TRACKERS if getattr(config.logging, name)]


class Trackers:
  """Writes to the requested trackers of a run, in one thread.

  A tracker that cannot start is tried again at the next tick. While 1,000 ticks are pending, new ticks are
  dropped.

  Args:
    report: called with a line for the user when a tracker starts to fail, and when it works again.
  """

  def __init__(self, config: Config, run: RunDirectory, report: Callable[[str], None]) -> None:
    self._config, self._run, self._report, self._guard = config, run, report, SinkGuard(report)
    self._open: dict[str, Tracker] = {}
    self._pending: queue.Queue[tuple[str, Any, int]] = queue.Queue(_MAX_PENDING)
    self._thread: threading.Thread | None = None
    if _requested(config):
      # A daemon thread, so that a tracker that hangs does not keep the process alive.
      self._thread = threading.Thread(target=self._work, name="trackers", daemon=True)
      self._thread.start()

  def write(self, scalars: Mapping[str, Any], env_steps: int) -> None:
    """Queues the finite numbers of a tick."""
    if self._thread is not None:
      with contextlib.suppress(queue.Full):
        self._pending.put_nowait(("write", dict(_numbers(scalars)), env_steps))

  def close(self, summary: Mapping[str, Any] | None) -> None:
    """Queues the final summary, and waits up to two minutes for the trackers; a second call does nothing."""
    thread, self._thread = self._thread, None
    if thread is None:
      return
    start = time.monotonic()
    with contextlib.suppress(queue.Full):
      self._pending.put(("finish", summary, 0), timeout=_CLOSE_S)
      thread.join(_CLOSE_S)
    if thread.is_alive():
      elapsed_s = time.monotonic() - start
      self._report(f"trackers are not finished after {elapsed_s:.0f} s; their last figures are lost")

  def _work(self) -> None:
    kind = ""
    while kind != "finish":
      kind, value, env_steps = self._pending.get()
      for name in _requested(self._config):
        with self._guard.writing(name, Exception):
          if name not in self._open:
            self._open[name] = TRACKERS[name](self._config, self._run)
          if kind == "finish":
            self._open[name].finish(value)
          else:
            self._open[name].write(value, env_steps)


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
  for name, value in values.items():
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
      yield name, value


def _read_ids(run: RunDirectory) -> dict[str, Any]:
  try:
    return read_json_object(run.trackers_path)
  except (OSError, ValueError):
    return {}


def _saved_id(run: RunDirectory, name: str) -> str | None:
  """Returns the identifier in a tracker that an earlier part of the run has saved, or None."""
  found = _read_ids(run).get(name)
  return found if isinstance(found, str) and re.fullmatch(r"[0-9a-f]{8,32}", found) else None


def _save_ids(run: RunDirectory, changes: Mapping[str, str | None]) -> None:
  """Changes entries of the identifiers' file; None removes one."""
  merged = _read_ids(run) | dict(changes)
  kept = {name: value for name, value in merged.items() if value is not None}
  write_text(run.trackers_path, json.dumps(kept) + "\n")
