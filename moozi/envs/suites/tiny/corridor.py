"""Corridor: a small reward at hand, a larger one far off. For tests and first looks.

The walker starts in cell 1. Cell 0 ends the episode with 0.1, the far end (cell length - 1) with 1; nothing
in between pays. Optimal return: 1, after length - 2 steps to the right. Greedy for the nearest reward: 0.1.
Discounted, the far end is the better one while discount ** (length - 3) > 0.1. A walker that goes back and
forth meets the step cap, which truncates: the one tiny environment with all three kinds of end.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from moozi.core.config import PositiveInt, Section
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, GameEnvironment

OPTIMAL_RETURN = 1.0
NEAR_RETURN = 0.1


class Options(Section):
  """Options of `tiny:corridor`."""

  length: Annotated[int, Field(ge=3, le=1000)] = Field(8, description="cells, both ends counted; 3 to 1000")
  max_episode_steps: PositiveInt | None = Field(50, description="truncate an episode after so many steps")


def make_spec(game: str, options: Options) -> EnvSpec:
  """The facts of a corridor of this length."""
  return EnvSpec(
    name=f"tiny:{game}",
    frame_shape=(1, options.length, 1),
    frame_dtype="bool",
    num_env_actions=2,
    action_names=("left", "right"),
  )


def make_environment(game: str, options: Options) -> Environment:
  """A corridor as an environment."""
  return GameEnvironment(_Corridor(options.length), make_spec(game, options), options.max_episode_steps)


class _Corridor:
  """The walker's cell is the whole state; nothing is left to chance."""

  def __init__(self, length: int) -> None:
    self._length = length
    self._cell = 1
    self._mask = np.ones(2, bool)
    self._mask.flags.writeable = False

  def seed(self, seed: int) -> None:
    pass

  def reset(self) -> None:
    self._cell = 1

  def step(self, action: int) -> tuple[float, bool, bool]:
    self._cell += 1 if action == 1 else -1
    if self._cell == 0:
      return NEAR_RETURN, True, False
    if self._cell == self._length - 1:
      return OPTIMAL_RETURN, True, False
    return 0.0, False, False

  def frame(self) -> np.ndarray:
    frame = np.zeros((1, self._length, 1), bool)
    frame[0, self._cell, 0] = True
    return frame

  def legal_actions_mask(self) -> np.ndarray:
    return self._mask

  def to_play(self) -> int:
    return 0
