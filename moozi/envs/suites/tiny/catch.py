"""Catch: one ball falls, the paddle must be under it. For tests and first looks.

Optimal return: 1 (every ball can be caught: the paddle crosses the board in four of nine steps).
Worst return: -1. A paddle that stays where it starts: -0.6 on average (one column of five).

Source: the usual first environment, as in bsuite. Departures: ball and paddle have a plane each.
"""

import numpy as np
from pydantic import Field

from moozi.core.config import PositiveInt, Section
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, GameEnvironment

OPTIMAL_RETURN = 1.0
ROWS, COLUMNS = 10, 5
BALL, PADDLE = 0, 1
"""Planes of a frame."""


class Options(Section):
  """Options of `tiny:catch`."""

  max_episode_steps: PositiveInt | None = Field(None, description="truncate an episode after so many steps")


def make_spec(game: str, options: Options) -> EnvSpec:
  """The facts of Catch."""
  return EnvSpec(
    name=f"tiny:{game}",
    frame_shape=(ROWS, COLUMNS, 2),
    frame_dtype="bool",
    num_env_actions=3,
    action_names=("left", "stay", "right"),
  )


def make_environment(game: str, options: Options) -> Environment:
  """Catch as an environment."""
  return GameEnvironment(_Catch(), make_spec(game, options), options.max_episode_steps)


class _Catch:
  """The ball starts in a random column of the top row, the paddle in the middle of the bottom row."""

  def __init__(self) -> None:
    self._mask = np.ones(3, bool)
    self._mask.flags.writeable = False
    self.seed(0)
    self.reset()

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._ball_row = 0
    self._ball_column = int(self._random.integers(COLUMNS))
    self._paddle_column = COLUMNS // 2

  def step(self, action: int) -> tuple[float, bool, bool]:
    self._paddle_column = min(max(self._paddle_column + action - 1, 0), COLUMNS - 1)
    self._ball_row += 1
    if self._ball_row < ROWS - 1:
      return 0.0, False, False
    return 1.0 if self._paddle_column == self._ball_column else -1.0, True, False

  def frame(self) -> np.ndarray:
    frame = np.zeros((ROWS, COLUMNS, 2), bool)
    frame[self._ball_row, self._ball_column, BALL] = True
    frame[ROWS - 1, self._paddle_column, PADDLE] = True
    return frame

  def legal_actions_mask(self) -> np.ndarray:
    return self._mask

  def to_play(self) -> int:
    return 0
