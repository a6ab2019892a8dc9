"""Trains and resumes runs, to the end or event by event."""

import inspect
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from moozi.api.run import Run
from moozi.api.run_access import LOADED_PLAYERS, check_code, open_run
from moozi.core.config import Config, Section
from moozi.core.errors import RunError, UserError, one_line
from moozi.core.plugins import describe_object
from moozi.core.spec import EnvSpec
from moozi.io import jax_process
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory, load_resumed_config
from moozi.io.run_lock import RunLock
from moozi.run.events import Event
from moozi.training.callbacks import make_callbacks
from moozi.training.checks import check_start
from moozi.training.resume import Resumed
from moozi.training.start import Stop
from moozi.training.start import train_events as recorded_events

ConfigLike = str | os.PathLike[str] | Config | Mapping[str, Any]
Callback = Callable[[Event], object]
# A function, or a name as in the configuration's `callbacks`.
CallbackLike = Callback | str
# `key=value`, or nested settings.
Override = str | Mapping[str, Any]


class Training(Iterator[Event]):
  """A run in progress: an iterator of its events (`moozi.run.events`), and a context manager.

  The run advances only while the next event is requested, except that Ray's actors also finish the calls that
  they have received. Each event is recorded before it is returned. If `close` is called or the `with` block
  is left before the run's end, the run ends with a checkpoint, from which `moozi.resume` continues. If no
  event of a new run was requested, its directory is deleted instead.

  Attributes:
    run: the run's directory; it can be read at any time. If it was renamed meanwhile, `run` has its new path
      once the run has ended.
    config: the run's configuration.
    resumed: the saved state from which a resumed run continues; None in a new run.
    summary: the results of the whole run; None before its end.
    stop: `stop.set()` requests the end of the run with a checkpoint; the run's last events still follow.
  """

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    directory: RunDirectory,
    lock: RunLock,
    resumed: Resumed | None,
    callbacks: Sequence[CallbackLike],
    stop: Stop | None = None,
  ) -> None:
    self.run, self.config, self.resumed = Run(directory.path), config, resumed
    self.stop = Stop() if stop is None else stop
    self._directory, self._lock, self._callbacks = directory, lock, [c for c in callbacks if callable(c)]
    self._named_callbacks: list[Callback] = []
    self.summary: dict[str, Any] | None = None
    self._events = self._train(spec)

  def __next__(self) -> Event:
    event = next(self._events)
    for callback in (*self._named_callbacks, *self._callbacks):
      callback(event)
    return event

  def close(self) -> None:
    """Ends the run with a checkpoint if it has not ended; a second call does nothing."""
    self.stop.set()
    if inspect.getgeneratorstate(self._events) == inspect.GEN_CREATED:
      self._events.close()
      self._lock.close()
      self._remove_unused()
    for _ in self._events:
      pass

  def __enter__(self) -> "Training":
    return self

  def __exit__(
    self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
  ) -> None:
    self.close()

  def _train(self, spec: EnvSpec) -> Generator[Event, None, None]:
    try:
      with self._lock, self._directory.held() as directory:
        self._named_callbacks = [*make_callbacks(self.config, self.run.path)]
        self.summary = yield from recorded_events(self.config, spec, directory, self.resumed, self.stop)
        self.run = Run(directory.where())
    except RunError:
      raise
    except BaseException:
      self._remove_unused()
      raise

  def _remove_unused(self) -> None:
    """Deletes the directory of a new run that never started training, so that its name can be used again."""
    if self.resumed is None and not self._directory.has_begun:
      shutil.rmtree(self._directory.path, ignore_errors=True)


def train(
  config: ConfigLike,
  *,
  callbacks: Sequence[CallbackLike] = (),
  allow_code: bool | None = None,
  **overrides: Any,
) -> Run:
  """Trains an agent until its run ends, as `moozi train` does.

  If the run has Ray actors, JAX uses only the CPU in this process from then on, so that the actors can use
  the GPU. If JAX has already used the GPU in this process, it continues to, and the GPU memory that it
  reserved stays reserved.

  Args:
    config: the name or path of a configuration, a `moozi.Config`, or a mapping of settings.
    callbacks: functions that are called with each event after it is recorded, or names as in the
      configuration's key `callbacks`. An error in a callback ends the run with a checkpoint and is raised.
    allow_code: None allows settings to name Python modules to import, such as your own environment. True
      also allows it to the runs that are named as players; False allows it to none.
    **overrides: settings that override `config`: `seed=1`, a section (`learner={"batch_size": 64}`, whose
      other settings stay), or a dotted key (`**{"learner.batch_size": 64}`).

  Returns: the run.
  Raises: UserError: a setting is invalid or cannot be used, or the run exists. RunError: the run cannot
    continue.
  """
  return _finish(train_events(config, callbacks=callbacks, allow_code=allow_code, **overrides))


def train_events(
  config: ConfigLike,
  *,
  callbacks: Sequence[CallbackLike] = (),
  allow_code: bool | None = None,
  **overrides: Any,
) -> Training:
  """Creates a run and returns an iterator of its events. The arguments and errors are those of `train`."""
  loaded, spec = check_run(config, callbacks=callbacks, allow_code=allow_code, **overrides)
  return create_run(loaded, spec, callbacks=callbacks)


def check_run(
  config: ConfigLike,
  *,
  callbacks: Sequence[CallbackLike] = (),
  allow_code: bool | None = None,
  **overrides: Any,
) -> tuple[Config, EnvSpec]:
  """Returns the configuration of a new run and its environment's specification, without creating the run.

  The arguments are those of `train`. Raises UserError if a setting is invalid or cannot be used.
  """
  from moozi.envs.registry import env_spec

  loaded = read_config(config, overrides | _named(callbacks))
  _start_jax(loaded)
  check_code(loaded, "config", allow_code is not False)
  loaded = loaded.allowing_code(allow_code is True)
  LOADED_PLAYERS.clear()
  spec = env_spec(loaded.env.name, **loaded.env.arguments)
  check_start(loaded, spec, is_new=True)
  return loaded, spec


def create_run(
  config: Config, spec: EnvSpec, *, callbacks: Sequence[CallbackLike] = (), stop: Stop | None = None
) -> Training:
  """Creates the directory of a new run and returns an iterator of the run's events.

  Args:
    config, spec: the results of `check_run`.
    stop: the attribute `stop` of the result; None: a new one.

  Raises: UserError: the run exists, or its directory cannot be created. If another error follows here, the
    directory is removed.
  """
  directory = RunDirectory.create(config)
  try:
    named = directory.load_config().allowing_code(config.allows_code)
    return Training(named, spec, directory, directory.claim(), None, callbacks, stop)
  except BaseException:
    shutil.rmtree(directory.path, ignore_errors=True)
    raise


def resume(
  run: str | os.PathLike[str],
  *,
  callbacks: Sequence[CallbackLike] = (),
  allow_code: bool = False,
  **overrides: Any,
) -> Run:
  """Continues a run from its newest intact checkpoint to its end, as `moozi train --resume` does.

  If the run has Ray actors, JAX uses only the CPU in this process, as in `train`.

  Args:
    run: a `moozi.Run` or its path.
    allow_code: whether the run, and the runs that it names as players, may import the Python modules that
      they name, and whether the run may join its Ray cluster. Joining is also allowed if an override sets
      `ray.address`.
    callbacks, **overrides: as in `train`.

  Returns: the run.
  Raises: UserError: the run cannot be resumed or is finished, or an override changes a setting that is fixed
    after the start. RunError: another process writes to the run, its directory has a link, or the run cannot
    continue.
  """
  return _finish(resume_events(run, callbacks=callbacks, allow_code=allow_code, **overrides))


def resume_events(
  run: str | os.PathLike[str],
  *,
  callbacks: Sequence[CallbackLike] = (),
  allow_code: bool = False,
  **overrides: Any,
) -> Training:
  """Resumes a run and returns an iterator of its events. The arguments and errors are those of `resume`."""
  layers = settings_layers(overrides | _named(callbacks))
  return continue_run(run, layers, callbacks=callbacks, allow_code=allow_code)


def continue_run(
  run: str | os.PathLike[str],
  overrides: Sequence[Override],
  *,
  callbacks: Sequence[CallbackLike] = (),
  allow_code: bool = False,
  allow_own_code: bool = False,
) -> Training:
  """Resumes a run and returns an iterator of its events, as `resume_events` does.

  Args:
    allow_own_code: as `allow_code`, but not for the runs that the run names as players.
    overrides: `key=value` or nested settings, as in `io.config.load_config`. A user who sets `ray.address`
      trusts that Ray cluster.
  """
  from moozi.envs.registry import env_spec
  from moozi.training.resume import load_resumed

  is_trusted = allow_code or allow_own_code
  directory, stored = open_run(run, is_trusted)
  address = stored.ray.address
  if address not in (None, "local") and not (is_trusted or any(map(_sets_ray_address, overrides))):
    raise UserError(
      f"{run}: ray.address={address}: this cluster can run code here; pass ray.address={address} if it is "
      "yours"
    )
  # The run is claimed before it is read, because another process may be writing it.
  lock = directory.claim()
  try:
    config = load_resumed_config(directory, overrides)
    _start_jax(config)
    config = config.allowing_code(allow_code)
    LOADED_PLAYERS.clear()
    spec = env_spec(config.env.name, **config.env.arguments)
    check_start(config, spec, is_new=False)
    return Training(config, spec, directory, lock, load_resumed(config, spec, directory), callbacks)
  except BaseException:
    lock.close()
    raise


def _sets_ray_address(override: Override) -> bool:
  if isinstance(override, str):
    return override.startswith("ray.address=")
  section = override.get("ray")
  return isinstance(section, Mapping) and "address" in section


def read_config(config: ConfigLike, overrides: Mapping[str, Any]) -> Config:
  """Returns the configuration with its overrides, given as in `train`. Raises UserError if it is invalid."""
  layers = settings_layers(overrides)
  if isinstance(config, Config):
    return load_config(None, [config.model_dump(mode="json"), *layers]) if layers else config
  if isinstance(config, Mapping):
    return load_config(None, [*settings_layers(config), *layers])
  if isinstance(config, str | os.PathLike):
    return load_config(Path(config), layers)
  raise _refusal(config)


def _refusal(config: object) -> UserError:
  """Returns the error for an object that is not a configuration, with a hint if it is an environment."""
  allowed = "must be the name or path of a configuration, a Config, or a mapping"
  if callable(config) or hasattr(config, "reset"):
    return UserError(f"config: {allowed}; {describe_object('env.name', config)}")
  return UserError(f"config={one_line(repr(config), 80)}: {allowed}")


def _start_jax(config: Config) -> None:
  """Starts JAX, or makes it use the CPU in this process if the run has actors, which need the GPU's memory.

  Raises: UserError: JAX cannot start.
  """
  if config.has_one_process:
    jax_process.check()
  else:
    jax_process.use_cpu_only()


def _named(callbacks: Sequence[CallbackLike]) -> dict[str, Any]:
  """Returns the setting `callbacks` with the callbacks that are names; an empty dict if there are none.

  Raises: UserError: `callbacks` is not a list, or a callback is neither a function nor a name.
  """
  if isinstance(callbacks, str) or not isinstance(callbacks, Sequence):
    raise UserError(f"callbacks={one_line(callbacks, 80)}: must be a list of functions and names")
  for i, callback in enumerate(callbacks):
    if not (callable(callback) or isinstance(callback, str)):
      raise UserError(f"callbacks[{i}]={one_line(callback, 80)}: must be a function or a name")
  names = [callback for callback in callbacks if isinstance(callback, str)]
  return {"callbacks": names} if names else {}


def settings_layers(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
  """Returns a nested mapping of plain values for each setting; a dotted key becomes nested keys."""
  layers = []
  for key, value in settings.items():
    layer = _plain(value)
    for name in reversed(str(key).split(".")):
      layer = {name: layer}
    layers.append(layer)
  return layers


def _plain(value: Any) -> Any:
  """Converts sections, paths and NumPy numbers to plain values."""
  if isinstance(value, Section):
    return value.model_dump(mode="json")
  if isinstance(value, Mapping):
    return {str(key): _plain(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [_plain(item) for item in value]
  if isinstance(value, os.PathLike):
    return os.fspath(value)
  return value.item() if isinstance(value, np.generic) else value


def _finish(training: Training) -> Run:
  with training:
    for _ in training:
      pass
  return training.run
