"""Environments for tests, written as a user would."""

import uuid
from pathlib import Path
from typing import ClassVar

import dm_env
import numpy as np
from dm_env import specs

from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.environment import Environment, Observation


class Counter(dm_env.Environment):
  """Counts to `length`; action 0 has a random reward."""

  def __init__(self, length=9) -> None:
    self._length = length
    self.seed(0)

  def seed(self, seed):
    self._random = np.random.default_rng(seed)

  def action_spec(self):
    return specs.DiscreteArray(3)

  def observation_spec(self):
    return specs.BoundedArray((2,), np.float32, 0, max(self._length, 9))

  def reset(self):
    self._count = 0
    return dm_env.restart(self._observe())

  def step(self, action):
    self._count += 1
    reward = float(self._random.integers(3)) if action == 0 else 0.0
    if self._count == self._length:
      return dm_env.termination(reward, self._observe())
    return dm_env.transition(reward, self._observe())

  def _observe(self):
    return np.array([self._count, self._random.random()], np.float32)


class _Unseeded(Counter):
  seed = None

  def __init__(self, length=9, seed=None) -> None:
    self._length = length
    self._random = np.random.default_rng(seed)


class _Counted(Counter):
  """Counts how many of its instances were closed."""

  num_closed = 0

  def close(self):
    type(self).num_closed += 1


class TooLong(_Counted):
  num_closed = 0

  def _observe(self):
    return np.zeros(2 + self._count // 8)


class MovesTwice(_Counted):
  num_closed = 0

  def observation_spec(self):
    return {"frame": super().observation_spec(), "to_play": specs.DiscreteArray(2)}

  def _observe(self):
    return {"frame": super()._observe(), "to_play": min(self._count, 7) % 2}


class _EndsWith(_Counted):
  last: ClassVar[dict]

  def step(self, action):
    step = super().step(action)
    return step._replace(**self.last) if step.last() else step


class Rewardless(_EndsWith):
  num_closed = 0
  last: ClassVar = {"reward": None}


class Discounted(_EndsWith):
  num_closed = 0
  last: ClassVar = {"discount": 0.9}


class Own(Environment):
  """A `moozi.Environment` for two players, which violates its spec as `fault` says."""

  env_spec = EnvSpec(name="own", frame_shape=(1, 1, 2), frame_dtype="uint8", num_env_actions=3, num_players=2)

  def __init__(self, fault=""):
    self._fault = fault

  def seed(self, seed):
    pass

  def reset(self):
    self._count = 0
    return dm_env.restart(self._observe())

  def step(self, action):
    self._count += 1
    if self._count < 5:
      return dm_env.transition(np.nan if self._fault == "reward" else 0.0, self._observe())
    step = dm_env.termination(1.0, self._observe())
    return step._replace(discount=0.9) if self._fault == "discount" else step

  def _observe(self):
    frame = np.zeros((1, 1, 2), np.float32 if self._fault == "frame" else np.uint8)
    mask = np.ones(2 if self._fault == "mask" else 3, bool)
    return Observation(frame, mask, 0 if self._fault == "player" else self._count % 2)


class EndsBadly(_Counted):
  num_closed = 0

  def step(self, action):
    return super().step(action) if self._count < 8 else 1 // 0


class TooMany(_Counted):
  num_closed = 0

  def action_spec(self):
    return specs.DiscreteArray(2**40, np.int64)


class Watched(Counter):
  """Keeps a set of its open instances; may violate its spec at a given step, or have two players."""

  open_envs: ClassVar[set] = set()
  num_made = 0

  def __init__(self, length=9, fails_at=None, num_players=1):
    super().__init__(length)
    self._fails_at, self._num_players = fails_at, num_players
    self.open_envs.add(self)
    Watched.num_made += 1

  def observation_spec(self):
    return {"frame": super().observation_spec(), "to_play": specs.DiscreteArray(self._num_players)}

  def step(self, action):
    step = super().step(action)
    return step._replace(reward=None) if self._count == self._fails_at else step

  def _observe(self):
    return {"frame": super()._observe(), "to_play": self._count % self._num_players}

  def close(self):
    self.open_envs.discard(self)


class Marking(Counter):
  """Writes one file when created and one when closed, which tests can read across processes."""

  def __init__(self, folder):
    super().__init__()
    self._path = Path(folder) / uuid.uuid4().hex
    self._path.with_suffix(".made").touch()

  def close(self):
    self._path.with_suffix(".closed").touch()


def make_counter(length=9):
  return Counter(length)


def make_seeded_lives(seed):
  from tests.envs.environments import make_lives

  env = make_lives()
  env.seed(seed)
  return env


def make_uneven(seed):
  env = Counter()
  env.observation_spec = lambda: specs.BoundedArray((2 + seed % 2,), np.float32, 0, 9)
  return env


def make_seeded(seed, length=9):
  return _Unseeded(length, seed)


def make_unseeded():
  return _Unseeded()


def make_walk():
  from gymnasium import spaces

  from tests.envs.suites.gymnasium_fakes import Walk

  return Walk(spaces.Box(-1, 1, (4,)))


def make_catch():
  from moozi.envs import registry

  return registry.make("tiny:catch", seed=0)


def make_board(seed):
  return registry.make("open_spiel:tic_tac_toe", seed)


class FailsOnce(Counter):
  """Fails when the environment is made for the third time."""

  num_made = 0

  def __init__(self, seed):
    super().__init__()
    FailsOnce.num_made += 1
    if FailsOnce.num_made == 3:
      raise OSError("port in use")


def make_actions(kind):
  """Returns a Gymnasium environment whose action space is wrong in some way."""
  from gymnasium import spaces

  from tests.envs.suites.gymnasium_fakes import Walk

  space = {
    "unbounded": lambda: spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "half": lambda: spaces.Box(0, np.inf, (2,), np.float32),
    "empty": lambda: spaces.Box(np.array([0, 1], np.float32), np.array([1, 1], np.float32)),
    "text": lambda: spaces.Text(3),
    "many": lambda: spaces.Box(-1, 1, (12,), np.float32),
  }
  if kind != "nan":
    return Walk(spaces.Box(-1, 1, (4,)), space[kind]())
  # Gymnasium refuses NaN when it makes a Box.
  box = spaces.Box(-1, 1, (2,), np.float32)
  box.low = np.array([0, np.nan], np.float32)
  return Walk(spaces.Box(-1, 1, (4,)), box)
