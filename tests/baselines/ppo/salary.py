"""An environment whose best action depends on the bootstrap at a time limit."""

import numpy as np

from moozi.core.spec import EnvSpec
from moozi.envs.game import Game, GameEnvironment

STAY, LEAVE = 0, 1
SALARY, BONUS = 1.0, 3.0
CAP = 2
SPEC = EnvSpec(name="test:salary", frame_shape=(1, 1, 1), frame_dtype="float32", num_env_actions=2)


class Salary(Game):
  """STAY pays SALARY; LEAVE pays BONUS and ends the episode.

  All frames are equal. The episode is truncated after CAP steps, and CAP · SALARY < BONUS. Without
  truncation, the value of STAY is SALARY / (1 - γ).
  """

  def seed(self, seed: int) -> None:
    pass

  def reset(self) -> None:
    pass

  def step(self, action: int) -> tuple[float, bool, bool]:
    return (BONUS, True, False) if action == LEAVE else (SALARY, False, False)

  def frame(self) -> np.ndarray:
    return np.ones((1, 1, 1), np.float32)


def make_env() -> GameEnvironment:
  return GameEnvironment(Salary(), SPEC, CAP)
