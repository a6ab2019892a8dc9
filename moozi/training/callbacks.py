"""Callbacks: functions of the user that are called with every event of a run."""

from collections.abc import Callable
from pathlib import Path

from moozi.core import plugins, user_code
from moozi.core.config import Config
from moozi.core.errors import RunError, UserError, one_line
from moozi.run.events import Event

Callback = Callable[[Event], None]
"""Called with each event of a run in order, after the event is recorded."""

CallbackMaker = Callable[[Config, Path], Callback]
"""(config, run_path) → callback. The key `callbacks` names functions of this type."""


def make_callbacks(config: Config, run_path: Path) -> list[Callback]:
  """Returns the run's callbacks. A callback that fails raises RunError, which ends the run.

  Raises: UserError: a function that the key `callbacks` names cannot be found, fails, or returns no function.
  """
  return [
    _make(plugins.CALLBACKS.get(value, f"callbacks[{i}]"), config, run_path)
    for i, value in enumerate(config.callbacks)
  ]


def _make(plugin: user_code.Plugin, config: Config, run_path: Path) -> Callback:
  function = plugin(config, run_path)
  if not callable(function):
    raise UserError(f"{plugin.where}: returns {one_line(function, 80)}; must return a function")

  def callback(event: Event) -> None:
    with plugin.errors(f"the callback failed at {type(event).__name__}", RunError):
      function(event)

  return callback
