"""An environment around another one, that hands everything on: the base of what changes one thing about an
environment.
"""

import dm_env
import numpy as np

from moozi.core.spec import EnvSpec
from moozi.envs.environment import Bot, Environment


class EnvironmentWrapper(Environment):
  """Is the environment within in every respect; what it wraps says in what it differs.

  Args:
    env: the environment within, which may be replaced later (`self._env`).
  """

  def __init__(self, env: Environment) -> None:
    self._env = env

  @property
  def env_spec(self) -> EnvSpec:
    """The facts of the environment within."""
    return self._env.env_spec

  def seed(self, seed: int) -> None:
    """Seeds the environment within; see `Environment.seed`."""
    self._env.seed(seed)

  def reset(self) -> dm_env.TimeStep:
    """Starts an episode; see `Environment`."""
    return self._env.reset()

  def step(self, action: int) -> dm_env.TimeStep:
    """Plays an action; see `Environment`."""
    return self._env.step(action)

  @property
  def will_continue(self) -> bool:
    """Whether the next reset goes on with the game; see `Environment.will_continue`."""
    return self._env.will_continue

  def make_bot(self, kind: str, simulations: int, seed: int) -> Bot:
    """A rival in the environment within; see `Environment.make_bot`."""
    return self._env.make_bot(kind, simulations, seed)

  def render(self) -> np.ndarray | None:
    """The picture of the environment within."""
    return self._env.render()

  def close(self) -> None:
    """Closes the environment within."""
    self._env.close()
