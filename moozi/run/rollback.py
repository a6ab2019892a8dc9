"""Rolls back to the last checkpoint, once per run, after repeated non-finite updates."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from moozi.core.errors import NotFiniteError
from moozi.core.pytree import replace
from moozi.run.events import Faulted
from moozi.run.state import RunState


@dataclasses.dataclass(frozen=True, kw_only=True)
class RollbackState:
  """What a rollback restores.

  Attributes:
    training: the saved training state in NumPy, its learner step set to the run's.
    found: the learner step at which it was saved.
    message: the fault's message.
  """

  training: Any
  found: int
  message: str

  def fault(self, counters: Mapping[str, Any], lost_updates: int) -> Faulted:
    counts = {"rollbacks": 1, "lost_updates": lost_updates}
    return Faulted(**counters, counts=counts, message=self.message)


class Rollback:
  """Replaces non-finite parameters by those of the last checkpoint, once per run.

  Args:
    latest: reads the newest saved state, or None if there is none.
  """

  def __init__(self, latest: Callable[[], RunState | None]) -> None:
    self._latest, self._is_taken = latest, False

  def take(self, error: NotFiniteError, learner_steps: int) -> RollbackState:
    """The state to restore.

    Args:
      learner_steps: the learner step that the restored state continues with; versions never decrease.

    Raises: NotFiniteError: `error`, if nothing is saved or the run was rolled back before.
    """
    saved = None if self._is_taken else self._latest()
    if saved is None:
      raise error
    self._is_taken = True
    training = replace(saved.training, learner_step=np.int32(learner_steps))
    message = f"{error}; restored the parameters of learner step {saved.learner_steps:,}"
    return RollbackState(training=training, found=saved.learner_steps, message=message)
