"""Segments of random play with random values, for benchmarks that need a full replay buffer."""

from typing import Any

import numpy as np

from moozi.core.pytree import fields_of, stack
from moozi.core.records import StepSample, TrajectorySample
from moozi.core.spec import DUMMY_ACTION
from moozi.envs.vector import make_vector


class RandomSegments:
  """Plays a vectorized environment at random.

  Args:
    name: the environment's name.
    kwargs: the environment's options.
    num_envs: number of environments.
    seed: seeds the environments, the actions and the values.
  """

  def __init__(self, name: str, kwargs: dict[str, Any], num_envs: int, seed: int = 0) -> None:
    self._env, self._rng = make_vector(name, kwargs, num_envs, seed), np.random.default_rng(seed)
    self._num_envs = num_envs
    self._step = self._env.reset()

  @property
  def spec(self) -> Any:
    """The environment's spec."""
    return self._env.spec

  def next(self, length: int, version: int = 0) -> TrajectorySample:
    """Returns the next segment, [length, num_envs, …], with `version` as its acted and searched version."""
    return TrajectorySample(**fields_of(stack([self._act(version) for _ in range(length)])))

  def close(self) -> None:
    """Closes the environments."""
    self._env.close()

  def _act(self, version: int) -> StepSample:
    step, mask = self._step, self._step.legal_actions_mask
    weights = self._rng.random(mask.shape, np.float32) * mask
    action = np.where(step.is_last, DUMMY_ACTION, weights.argmax(axis=1)).astype(np.int32)
    is_end = step.is_last & ~step.is_truncated
    versions = np.full(self._num_envs, version, np.int32)
    self._step = self._env.step(action)
    return StepSample(
      **fields_of(step),
      root_value=np.where(is_end, 0, self._rng.random(self._num_envs)).astype(np.float32),
      action_probs=weights / weights.sum(axis=1, keepdims=True),
      action=action,
      acted_version=versions,
      searched_version=versions,
    )
