"""The face of worlds side by side. Three classes have it, and none is another's subclass."""

from typing import Protocol

import numpy as np

from moozi.core.flat_state import State
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec


class VectorWorlds(Protocol):
  """B worlds of one spec, stepped together. `envs.vector.VectorEnvironment` says what each method does."""

  @property
  def num_envs(self) -> int:
    """How many worlds there are, B."""

  @property
  def spec(self) -> EnvSpec:
    """The facts that all the worlds share."""

  @property
  def num_faults(self) -> int:
    """How often a world was made anew since the start."""

  def reset(self) -> BatchedTimeStep:
    """Starts a new episode in every world."""

  def step(self, actions: np.ndarray) -> BatchedTimeStep:
    """Steps every world, [B] integers in the agent's action space; the step after an end resets."""

  def render(self, i: int) -> np.ndarray | None:
    """World i's own picture, [h, w, 3] uint8; None where it has none."""

  def get_state(self) -> State:
    """What `set_state` takes the worlds back with."""

  def set_state(self, state: State, shown: BatchedTimeStep) -> tuple[BatchedTimeStep, np.ndarray]:
    """Takes the worlds back to where they showed `shown`; also [B] bool, where a new game had to begin."""

  def close(self) -> None:
    """Closes every world."""
