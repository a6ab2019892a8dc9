"""MinAtar's Breakout, that raises or hangs where it finds a file that says so: the environment of the soak's
runs.

Calm runs play in it too, so that all of them are the same but for the faults.
"""

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
  """Does what the file `fault` says, once, and is the environment within otherwise.

  Args:
    env: the environment within.
    folder: where the file may lie; "raise" or "hang" is in it. The environment that takes it away is the one.
  """

  def __init__(self, env: Environment, folder: Path) -> None:
    super().__init__(env)
    self._fault, self._taken = folder / "fault", folder / "taken"
    # Looked for in every step, so it costs as little as can be.
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
      raise ArithmeticError("a fault of the environment's own")


def make_env(folder: str, **kwargs: Any) -> Environment:
  """The environment; `kwargs` are options of minatar:breakout."""
  return Breakable(make("minatar:breakout", seed=0, **kwargs), Path(folder))
