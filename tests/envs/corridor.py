"""The known values of `tiny:corridor` with slipping steps."""

import numpy as np


def corridor_values(length: int, slip: float, discount: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns the reward on entering each cell, and the optimal values of the cells by value iteration."""
  value, reward = np.zeros(length), np.zeros(length)
  reward[0], reward[-1] = 0.1, 1.0
  for _ in range(2000):
    entered = reward + discount * value
    right = (1 - slip) * entered[2:] + slip * entered[:-2]
    left = (1 - slip) * entered[:-2] + slip * entered[2:]
    value[1:-1] = np.maximum(left, right)
  return reward, value
