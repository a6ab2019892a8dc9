"""Toy environments for tests."""

import importlib.metadata
import importlib.util

import numpy as np
import pytest

from moozi.core.spec import EnvSpec
from moozi.envs.game import Game, GameEnvironment


class Nim(Game):
  """Two players take 1 to 3 of seven sticks in turn; the player who takes the last stick wins 1."""

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


class Lives(Game):
  """A game with three lives; a life is lost after 3 to 7 steps. The frame is the game's step count.

  A lost life ends the episode; the next reset plays one step and continues the game.
  """

  def __init__(self) -> None:
    self.is_continued = False
    self.seed(0)

  def seed(self, seed: int) -> None:
    self._random, self.will_continue = np.random.default_rng(seed), False

  def reset(self) -> None:
    self.is_continued, self.will_continue = self.will_continue, False
    if self.is_continued:
      self._count += 1
    else:
      self._count, self._lives = 0, 3
    self._left = int(self._random.integers(3, 8))

  def step(self, action: int) -> tuple[float, bool, bool]:
    self._count += 1
    self._left -= 1
    if self._left:
      return float(action), False, False
    self._lives -= 1
    self.will_continue = self._lives > 0
    return float(action), True, False

  def frame(self) -> np.ndarray:
    return np.array([[[self._count, self._lives]]], np.uint8)

  def render(self) -> np.ndarray:
    return np.full((4, 6, 3), self._count, np.uint8)


LIVES_SPEC = EnvSpec(
  name="test:lives",
  frame_shape=(1, 1, 2),
  frame_dtype="uint8",
  num_env_actions=2,
  action_names=("rest", "earn 1"),
)


def make_lives(max_episode_steps: int | None = None) -> GameEnvironment:
  return GameEnvironment(Lives(), LIVES_SPEC, max_episode_steps)


NIM_SPEC = EnvSpec(
  name="test:nim",
  frame_shape=(1, 1, 2),
  frame_dtype="float32",
  num_env_actions=3,
  num_players=2,
  action_names=("take 1", "take 2", "take 3"),
)


def make_nim(max_episode_steps: int | None = None) -> GameEnvironment:
  return GameEnvironment(Nim(), NIM_SPEC, max_episode_steps)


def need(package: str) -> None:
  """Skips the tests if a package is missing, or is gymnax older than 1.0. Importing it would take seconds."""
  if importlib.util.find_spec(package) is None:
    pytest.skip(f"{package} is missing", allow_module_level=True)
  if package == "gymnax" and importlib.metadata.version(package).startswith("0."):
    pytest.skip("gymnax is older than 1.0", allow_module_level=True)
