"""An environment in which the bootstrap at a time limit decides: `tests.baselines.ppo.salary:make_env`."""

import numpy as np

from moozi.core.spec import EnvSpec
from moozi.envs.environment import Game, GameEnvironment

STAY, LEAVE = 0, 1
SALARY, BONUS = 1.0, 3.0
CAP = 2
SPEC = EnvSpec(name="test:salary", frame_shape=(1, 1, 1), frame_dtype="float32", num_env_actions=2)


class Salary(Game):
  """Pays SALARY for every step of staying; leaving pays BONUS and ends the episode.

  All frames are equal. A time limit truncates the episode after CAP steps, and CAP · SALARY < BONUS. Without
  the limit, staying is worth SALARY / (1 - γ).
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
