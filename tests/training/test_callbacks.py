"""Tests of users' callbacks."""

import pytest

from moozi.core import plugins
from moozi.core.errors import RunError, UserError
from moozi.run.events import Started
from moozi.training.callbacks import make_callbacks

pytestmark = pytest.mark.usefixtures("folder")
STARTED = Started(env_steps=0, learner_steps=0, message="")


def config_with(config, *names):
  return config.model_copy(update={"callbacks": names})


def test_callbacks_are_made_with_the_run_and_called_in_order(tiny_config, tmp_path):
  seen = []
  for name in ("first", "second"):

    @plugins.register_callback(name)
    def make(config, run_path, name=name):
      return lambda event: seen.append((name, config.seed, run_path, event))

  for callback in make_callbacks(config_with(tiny_config, "second", "first"), tmp_path):
    callback(STARTED)
  assert seen == [("second", 0, tmp_path, STARTED), ("first", 0, tmp_path, STARTED)]


def test_errors(tiny_config, tmp_path):
  plugins.register_callback("none")(lambda config, run_path: None)
  plugins.register_callback("raises")(lambda config, run_path: lambda event: 1 / 0)
  with pytest.raises(UserError, match=r"callbacks\[0\]=none: returns None; must return a function"):
    make_callbacks(config_with(tiny_config, "none"), tmp_path)
  (callback,) = make_callbacks(config_with(tiny_config, "raises"), tmp_path)
  with pytest.raises(
    RunError,
    match=r"callbacks\[0\]=raises: the callback failed at Started: .*callbacks.py:\d+: ZeroDivisionError",
  ):
    callback(STARTED)
