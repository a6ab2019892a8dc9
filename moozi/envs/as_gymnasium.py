"""An environment as a `gymnasium.Env`, for code that expects Gymnasium's interface.

This module is imported on demand, because the package gymnasium is optional.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from moozi.core.errors import one_line
from moozi.core.factors import ActionPart, nest


class GymnasiumView(gymnasium.Env[np.ndarray, Any]):
  """A `moozi.envs.environment.Environment` in Gymnasium's terms.

  Actions are integers from 0; where they have dimensions (`EnvSpec.factors`), they are the environment's own:
  arrays, or dicts or tuples of them. In a dimension that is divided into bins, `step` plays the nearest bin.

  Observations are frames [H, W, C]. `info` has `legal_actions_mask` [mask_size] bool, `to_play`, and
  `is_continued` (see `Observation`); where the environment has `max_moves`, also `position`, which agents of
  `algorithm=alphazero` need. `step` raises ValueError for an illegal action, and for any action before
  `reset` or after the end of an episode.

  With two players, `step` plays for the player to move, which `info["to_play"]` names, and the reward is for
  the player who moved. Gymnasium's interface has one agent, so a library that maximizes the sum of rewards
  would maximize the rewards of both sides. Use two-player games only in a loop that handles the sides.

  Args:
    env: the environment; it must not be used elsewhere at the same time.
    render_mode: "rgb_array" or None. `render` returns None with the mode None, and where the environment has
      no picture of its own.

  Raises: ValueError: another `render_mode`.
  """

  metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012 - gymnasium's

  def __init__(self, env: Any, render_mode: str | None = None) -> None:
    if render_mode not in (None, *self.metadata["render_modes"]):
      raise ValueError(f"render_mode={render_mode!r}: must be 'rgb_array' or None")
    self._env, self.render_mode = env, render_mode
    spec = env.env_spec
    low, high = {"bool": (0, 1), "uint8": (0, 255), "float32": (-np.inf, np.inf)}[spec.frame_dtype]
    self.observation_space = spaces.Box(low, high, spec.frame_shape, np.dtype(spec.frame_dtype).type)
    self.action_space: spaces.Space[Any] = spaces.Discrete(spec.num_env_actions)
    if spec.factors is not None:
      parts = ((part.path, _array_space(part)) for part in spec.factors.parts)
      self.action_space = nest(parts, spaces.Dict, spaces.Tuple)
    self._needs_reset = True

  def reset(
    self, *, seed: int | None = None, options: dict[str, Any] | None = None
  ) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts an episode; `seed` seeds the environment first, unless it is None. Ignores `options`."""
    super().reset(seed=seed)
    if seed is not None:
      self._env.seed(seed)
    self._needs_reset = False
    return self._split(self._env.reset())

  def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
    if self._needs_reset:
      raise ValueError(f"action={one_line(action, 80)}: the episode is over; call reset")
    step = self._env.step(action)
    self._needs_reset = step.last()
    # dm_env's discount is 0 at an end of the task, and 1 at a time limit.
    is_terminal = step.last() and not step.discount
    frame, info = self._split(step)
    return frame, float(step.reward), is_terminal, step.last() and not is_terminal, info

  def render(self) -> np.ndarray | None:  # type: ignore[override]
    return self._env.render() if self.render_mode == "rgb_array" else None

  def close(self) -> None:
    self._env.close()

  def _split(self, step: Any) -> tuple[np.ndarray, dict[str, Any]]:
    seen = step.observation
    info = {"legal_actions_mask": np.array(seen.legal_actions_mask), "to_play": int(seen.to_play)}
    if self._env.max_moves is not None:
      info["position"] = self._env.position()
    return seen.frame, info | {"is_continued": bool(seen.is_continued)}


def _array_space(part: ActionPart) -> spaces.Space[Any]:
  """Returns the space of an array of an action."""
  dtype, low, high = np.dtype(part.dtype), *(np.array([v[i] for v in part.values]) for i in (0, -1))
  if dtype.kind == "b":
    return spaces.MultiBinary(part.shape)
  if dtype.kind == "f" or any(len(v) != v[-1] - v[0] + 1 for v in part.values):
    low, high = (bound.reshape(part.shape).astype(dtype) for bound in (low, high))
    return spaces.Box(low, high, part.shape, dtype.type)
  if not part.shape:
    return spaces.Discrete(len(part.values[0]), start=int(low[0]))
  sizes = np.array([len(v) for v in part.values]).reshape(part.shape)
  return spaces.MultiDiscrete(sizes, dtype.type, start=low.reshape(part.shape))
