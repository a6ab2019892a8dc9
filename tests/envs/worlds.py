"""Worlds made up for tests."""

import numpy as np

from moozi.core.spec import EnvSpec
from moozi.envs.environment import GameEnvironment


class Nim:
  """Two players take 1 to 3 of seven sticks in turn; who takes the last one wins 1."""

  def __init__(self, num_sticks: int = 7) -> None:
    self._num_sticks = num_sticks

  def seed(self, seed: int) -> None:
    pass

  def reset(self) -> None:
    self._left, self._player = self._num_sticks, 0

  def step(self, action: int) -> tuple[float, bool, bool]:
    self._left -= action + 1
    self._player = 1 - self._player
    return float(self._left == 0), self._left == 0, False

  def frame(self) -> np.ndarray:
    return np.array([[[self._left, self._player]]], np.float32)

  def legal_actions_mask(self) -> np.ndarray:
    return np.arange(3) < self._left

  def to_play(self) -> int:
    return self._player


NIM_SPEC = EnvSpec(
  name="test:nim",
  frame_shape=(1, 1, 2),
  frame_dtype="float32",
  num_env_actions=3,
  num_players=2,
  action_names=("take 1", "take 2", "take 3"),
)


def make_nim(max_episode_steps: int | None = None) -> GameEnvironment:
  """Nim as a world."""
  return GameEnvironment(Nim(), NIM_SPEC, max_episode_steps)
