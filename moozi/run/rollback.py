"""The one way back of a run whose updates are not finite."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from moozi.core.errors import NotFiniteError
from moozi.core.pytree import replace
from moozi.run.state import RunState


@dataclasses.dataclass(frozen=True, kw_only=True)
class RollbackState:
  """What a run goes on with.

  Attributes:
    training: the state, in NumPy.
    found: the learner step it was saved at.
    message: what to tell.
  """

  training: Any
  found: int
  message: str

  def told(self, lost_updates: int) -> dict[str, Any]:
    """`counts` and `message` of a Faulted."""
    return {"counts": {"rollbacks": 1, "lost_updates": lost_updates}, "message": self.message}


class Rollback:
  """Once in a run: parameters that give nothing but NaN make room for those of the last checkpoint.

  Args:
    latest: reads the newest whole state that was saved; None: there is none yet.
  """

  def __init__(self, latest: Callable[[], RunState | None]) -> None:
    self._latest, self._is_taken = latest, False

  def take(self, error: NotFiniteError, learner_steps: int) -> RollbackState:
    """What to go on with, its learner step moved on to `learner_steps`.

    Raises: NotFiniteError: `error`, where there is no way back (any more).
    """
    before = None if self._is_taken else self._latest()
    if before is None:
      raise error
    self._is_taken = True
    found = int(before.training.learner_step)
    message = f"{error}; the parameters are those of learner step {found:,} again"
    training = replace(before.training, learner_step=np.int32(learner_steps))
    return RollbackState(training=training, found=found, message=message)
