"""An environment whose errors become one line, for uses without a guard."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from dm_env import TimeStep

from moozi.core.errors import EnvError, UserError, as_exceptions, one_line
from moozi.envs.environment import Environment, EpisodePlayer, Observation
from moozi.envs.validation import check_reward, check_step
from moozi.envs.wrappers import EnvironmentWrapper

_log = logging.getLogger("moozi.envs")


class CheckedEnvironment(EnvironmentWrapper):
  """Checks every step of an environment as a run does, and turns errors other than UserError into EnvError.

  It is for one environment that is stepped outside a `SyncVectorEnvironment`, for example at a table or in a
  search with the true rules. Do not step it after a LAST step. An error of `close` is only logged.
  """

  def __init__(self, env: Environment) -> None:
    super().__init__(env)
    self._to_play = 0

  def seed(self, seed: int) -> None:
    with self._errors("seed"):
      super().seed(seed)

  def reset(self) -> TimeStep:
    with self._errors("reset"):
      return self._checked(super().reset(), None)

  def step(self, action: int) -> TimeStep:
    with self._errors("step"):
      return self._checked(super().step(action), 1 - self._to_play)

  def clone(self) -> Environment:
    with self._errors("clone"):
      out = CheckedEnvironment(super().clone())
    out._to_play = self._to_play
    return out

  def position(self) -> Any:
    with self._errors("position"):
      return super().position()

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    with self._errors("make_bot"):
      return super().make_bot(kind, budget, seed)

  def render(self) -> np.ndarray | None:
    with self._errors("render"):
      return super().render()

  def close(self) -> None:
    try:
      with self._errors("close"):
        super().close()
    except UserError as error:
      _log.warning("%s", error, exc_info=True)

  def _checked(self, step: TimeStep, mover: int | None) -> TimeStep:
    spec = self.env_spec
    step = check_step(spec, step, is_first=mover is None, mover=mover)
    reward = None if mover is None else check_reward(f"env.name={spec.name}", step.reward)
    frame, mask, to_play, is_continued = step.observation
    self._to_play = int(to_play)
    seen = Observation(np.asanyarray(frame), np.asarray(mask, bool), self._to_play, is_continued)
    return step._replace(reward=reward, observation=seen)

  @contextlib.contextmanager
  def _errors(self, what: str) -> Iterator[None]:
    try:
      with as_exceptions():
        yield
    except UserError:
      raise
    except Exception as error:
      text = f"{type(error).__name__}: {one_line(error)}"
      raise EnvError(f"env.name={self.env_spec.name}: {what} failed: {text}") from error
