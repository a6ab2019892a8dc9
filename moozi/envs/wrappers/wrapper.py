"""A world around another one, that hands everything on: the base of what changes one thing about a world."""

import dm_env
import numpy as np

from moozi.core.spec import EnvSpec
from moozi.envs.environment import Bot, Environment


class EnvironmentWrapper(Environment):
  """Is the world within in every respect; what it wraps says in what it differs.

  Args:
    env: the world within, which may be replaced later (`self._env`).
  """

  def __init__(self, env: Environment) -> None:
    self._env = env

  @property
  def world_spec(self) -> EnvSpec:
    """The facts of the world within."""
    return self._env.world_spec

  def seed(self, seed: int) -> None:
    """Seeds the world within; see `Environment.seed`."""
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
    """A rival in the world within; see `Environment.make_bot`."""
    return self._env.make_bot(kind, simulations, seed)

  def render(self) -> np.ndarray | None:
    """The picture of the world within."""
    return self._env.render()

  def close(self) -> None:
    """Closes the world within."""
    self._env.close()
