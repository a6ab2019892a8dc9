"""A game whose actions have dimensions of several kinds, in a dict, for tests."""

import numpy as np

from moozi.core.factors import ActionPart, Factors, bins
from moozi.core.spec import EnvSpec
from moozi.envs.game import Game, GameEnvironment

CAR = Factors(
  parts=(
    ActionPart(path=("gas",), shape=(2,), dtype="float32", values=(bins(-1, 1, 7),) * 2),
    ActionPart(path=("more", 0), shape=(), dtype="int64", values=((2, 3, 4),)),
    ActionPart(path=("more", 1), shape=(2,), dtype="int8", values=((0, 1),) * 2),
    ActionPart(path=("more", 2), shape=(1,), dtype="bool", values=((0, 1),)),
  ),
  names=("gas left", "gas right", "gear", "horn", "light", "door"),
)


class Car(Game):
  """Records its actions; an episode has 4 steps, and a reward is the number of the action."""

  def __init__(self, num_players=1):
    self.actions, self._num_players = [], num_players
    self.reset()

  def seed(self, seed):
    pass

  def reset(self):
    self._time = 0

  def step(self, action):
    assert type(action) is int
    self.actions.append(action)
    self._time += 1
    return float(action), self._time == 4, False

  def to_play(self):
    return self._time % self._num_players

  def frame(self):
    return np.full((1, 1, 2), self._time, np.float32)


def make_car(num_players=1):
  spec = EnvSpec(
    name="test:car",
    frame_shape=(1, 1, 2),
    frame_dtype="float32",
    num_env_actions=CAR.num_joint_actions,
    num_players=num_players,
    factors=CAR,
  )
  return GameEnvironment(Car(num_players), spec)
