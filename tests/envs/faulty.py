"""An environment that fails on purpose; its name in configurations is `tests.envs.faulty:make_env`."""

import collections
import itertools
import math
import time

import numpy as np
from dm_env import TimeStep

from moozi.core.spec import EnvSpec
from moozi.envs.game import Game, GameEnvironment

SPEC = EnvSpec(name="test:faulty", frame_shape=(1, 1, 2), frame_dtype="float32", num_env_actions=2)


_NAN = -1.0


class Faulty(Game):
  """Plays episodes of nine steps with reward 1; fails in the way `how` if `fails(seed, game, step)` is true.

  Games are counted from 0. The frame contains the step in the game and the seed modulo 1,000.
  """

  def __init__(self, how: str, fails) -> None:
    self._how, self._fails = how, fails
    self._seed, self._episode, self._count = 0, -1, 0

  def seed(self, seed: int) -> None:
    self._seed = seed

  def reset(self) -> None:
    self._episode, self._count = self._episode + 1, 0
    self._fail()

  def step(self, action: int) -> tuple[float, bool, bool]:
    self._count += 1
    reward = self._fail()
    return reward, self._count == 9, False

  def _fail(self) -> float:
    if not self._fails(self._seed, self._episode, self._count):
      return 1.0
    if self._how == "nan":
      return _NAN
    if self._how == "nan_frame":
      return 1.0
    while self._how == "hang":
      time.sleep(3600)
    if self._how == "stuck":
      collections.deque(itertools.repeat(0), maxlen=0)  # an endless loop in C, in which no signal is handled
    while self._how == "swallow":
      try:
        time.sleep(3600)
      except Exception:  # swallows the timeout's error
        continue
    raise ArithmeticError(f"the environment's own error\nin step {self._count}")

  def frame(self) -> np.ndarray:
    is_bad = self._how == "nan_frame" and self._fails(self._seed, self._episode, self._count)
    return np.array([[[_NAN if is_bad else self._count, self._seed % 1000]]], np.float32)


class _WithNaN(GameEnvironment):
  """Shows NaN in place of `_NAN` in rewards and frames, because `GameEnvironment` refuses NaN of its game."""

  def step(self, action: int) -> TimeStep:
    step = super().step(action)
    frame = np.where(step.observation.frame == _NAN, np.float32(math.nan), step.observation.frame)
    reward = math.nan if step.reward == _NAN else step.reward
    return step._replace(reward=reward, observation=step.observation._replace(frame=frame))


_num_made = 0


def make_env(
  how: str = "raise",
  episode: int = 1,
  step: int = 5,
  every_seed: bool = True,
  sound_envs: int | None = None,
) -> GameEnvironment:
  """Returns an environment that fails in one step of one episode, for every seed or for even seeds only.

  After the first `sound_envs` environments of a process, all further ones fail in every episode.
  """
  global _num_made
  _num_made += 1
  is_late = sound_envs is not None and _num_made > sound_envs

  def fails(seed: int, game: int, count: int) -> bool:
    return count == step and (is_late or game == episode) and (every_seed or seed % 2 == 0)

  return _WithNaN(Faulty(how, fails), SPEC)
