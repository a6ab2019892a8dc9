"""Rolls back to the last checkpoint after repeated non-finite updates, once per start or resume of a run."""

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
  """The state that a rollback restores.

  Attributes:
    training: the saved training state as NumPy arrays, with the learner step that `take` was given.
    found: learner step at which the state was saved.
    message: message of the Faulted event.
    skipped: numbers of skipped updates that led to the rollback, by kind of fault.
  """

  training: Any
  found: int
  message: str
  skipped: Mapping[str, int]

  def fault(self, counters: Mapping[str, Any], lost_updates: int) -> Faulted:
    counts = {"rollbacks": 1, "lost_updates": lost_updates, **self.skipped}
    return Faulted(**counters, counts=counts, message=self.message)


class Rollback:
  """Returns the training state of the last checkpoint for a rollback, once per start or resume of a run.

  Args:
    latest: returns the newest saved state, or None if there is none.
  """

  def __init__(self, latest: Callable[[], RunState | None]) -> None:
    self._latest, self._is_taken = latest, False

  def take(self, error: NotFiniteError, learner_steps: int) -> RollbackState:
    """Returns the state to restore.

    Args:
      learner_steps: learner step of the restored state. In one process it is the run's current one; with Ray,
        it is one that no worker can have seen, so that no version is used twice.

    Raises: NotFiniteError: `error` itself, if no state is saved, or if this is not the first call.
    """
    saved = None if self._is_taken else self._latest()
    if saved is None:
      raise error
    self._is_taken = True
    training = replace(saved.training, learner_step=np.int32(learner_steps))
    message = f"{error}; restored the parameters of learner step {saved.learner_steps:,}"
    return RollbackState(training=training, found=saved.learner_steps, message=message, skipped=error.counts)
