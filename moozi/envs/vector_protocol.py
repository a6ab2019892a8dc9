"""The face of environments side by side. Three classes have it, and none is another's subclass."""

from typing import Protocol, runtime_checkable

import numpy as np

from moozi.core.flat_state import State
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec


@runtime_checkable
class VectorEnvironment(Protocol):
  """B environments of one spec, stepped together. `envs.vector.SyncVectorEnvironment` says what each
  method does.
  """

  @property
  def num_envs(self) -> int:
    """How many environments there are, B."""

  @property
  def spec(self) -> EnvSpec:
    """The facts that all the environments share."""

  @property
  def num_faults(self) -> int:
    """How often an environment was made anew since the start."""

  def reset(self) -> BatchedTimeStep:
    """Starts a new episode in every environment."""

  def step(self, actions: np.ndarray) -> BatchedTimeStep:
    """Steps every environment, [B] integers in the agent's action space; the step after an end resets."""

  def render(self, i: int) -> np.ndarray | None:
    """Environment i's own picture, [h, w, 3] uint8; None where it has none."""

  def get_state(self) -> State:
    """What `set_state` takes the environments back with."""

  def set_state(self, state: State, shown: BatchedTimeStep) -> tuple[BatchedTimeStep, np.ndarray]:
    """Takes the environments back to where they showed `shown`; also [B] bool, where a new game had to
    begin.
    """

  def close(self) -> None:
    """Closes every environment."""
