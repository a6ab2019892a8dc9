"""Gymnasium environments for tests; this module needs gymnasium."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
  """Returns random observations of a given space; step 9 terminates or truncates the episode, or both."""

  metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}

  def __init__(
    self, observation_space=None, action_space=None, ends="terminated", show=None, render_mode=None
  ) -> None:
    self.observation_space = observation_space or spaces.Box(0, 255, (6, 5, 3), np.uint8)
    self.action_space = spaces.Discrete(3) if action_space is None else action_space
    self._ends, self._show_fn = ends, show
    self.closed, self.render_mode = False, render_mode
    self.seeds: list[int | None] = []
    self.actions: list[Any] = []

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self.seeds.append(seed)
    self._step = 0
    return self._observe(), {}

  def step(self, action):
    assert self.action_space.contains(action), action
    self.actions.append(action)
    self._step += 1
    is_over = self._step == 9
    terminated = is_over and self._ends in ("terminated", "both")
    truncated = is_over and self._ends in ("truncated", "both")
    return self._observe(), np.float32(0.5), terminated, truncated, {}

  def _observe(self):
    if self._show_fn is not None:
      return self._show_fn(self._step)
    self.observation_space.seed(int(self.np_random.integers(2**31)))
    return self.observation_space.sample()

  def render(self):
    assert self.render_mode is not None
    return np.full((8, 9, 3), self._step, np.uint8)

  def close(self):
    self.closed = True
