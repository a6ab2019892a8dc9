"""MinAtar Breakout that raises or hangs when a file appears; all runs of the soak use it."""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import dm_env

from moozi.envs.environment import Environment
from moozi.envs.registry import make
from moozi.envs.wrappers import EnvironmentWrapper


class Breakable(EnvironmentWrapper):
  """Fails once each time the file `fault` appears, and otherwise behaves as the wrapped environment.

  Args:
    env: the wrapped environment.
    folder: where the file `fault` appears, with the text "raise" or "hang". Each environment that finds the
      file tries to rename it, and only the one that succeeds fails.
  """

  def __init__(self, env: Environment, folder: Path) -> None:
    super().__init__(env)
    self._fault, self._taken = folder / "fault", folder / "taken"
    # This path is a string for speed: every step checks whether the file exists.
    self._path = str(self._fault)

  def step(self, action: int) -> dm_env.TimeStep:
    """Plays an action, or fails."""
    if os.path.exists(self._path):
      self._fail()
    return super().step(action)

  def _fail(self) -> None:
    with contextlib.suppress(FileNotFoundError):
      self._fault.rename(self._taken)
      while self._taken.read_text() == "hang":
        time.sleep(3600)
      raise ArithmeticError("injected fault")


def make_env(folder: str, **kwargs: Any) -> Environment:
  """Creates the environment; `kwargs` are options of minatar:breakout."""
  return Breakable(make("minatar:breakout", seed=0, **kwargs), Path(folder))
