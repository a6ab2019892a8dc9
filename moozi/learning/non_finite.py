"""Counts updates that were skipped because a loss or a gradient was not finite."""

import collections
import logging
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from moozi.core.config import LearnerConfig
from moozi.core.errors import NotFiniteError

_log = logging.getLogger("moozi.learner")


class NonFiniteGuard:
  """Counts skipped updates by the term that was not finite; raises after too many consecutive ones.

  Args:
    terms: names of the losses and gradients that an update checks, in order.
    limit: number of consecutive skipped updates at which `count` raises.
    bound: the configuration key of the limit with its value, `key=value`, for the error message.
  """

  def __init__(self, terms: Sequence[str], limit: int, bound: str) -> None:
    self._terms, self._limit, self._bound = terms, limit, bound
    self._in_a_row = 0

  def reset(self) -> None:
    """Resets the count of consecutive skipped updates."""
    self._in_a_row = 0

  def count(self, bad_term: Int[np.ndarray, "U"], first_step: int) -> dict[str, int]:
    """Counts and logs the skipped updates among U updates.

    Args:
      bad_term: index of the first term that was not finite in each update; -1 if none.
      first_step: learner step before the first update.
    Returns: for each term that was the first one not finite in an update, the number of these updates, as
      `faults/not_finite_<name>`. <name> is the part of the term's name after its last `/`.
    Raises: NotFiniteError: `limit` consecutive updates were skipped. Its `counts` are those of this call.
    """
    counts: collections.Counter[str] = collections.Counter()
    excess = None
    for step, code in enumerate(bad_term.tolist(), start=first_step):
      self._in_a_row = self._in_a_row + 1 if code >= 0 else 0
      if code < 0:
        continue
      term = self._terms[code]
      counts[f"not_finite_{term.rpartition('/')[2]}"] += 1
      _log.warning("the update after learner step %d is skipped: %s is not finite", step, term)
      if self._in_a_row >= self._limit and excess is None:
        excess = (
          f"{term} is not finite: {self._in_a_row} updates in a row were skipped, the last "
          f"after learner step {step}; {self._bound} allows no more"
        )
    if excess is not None:
      raise NotFiniteError(excess, {"skipped_updates": counts.total(), **counts})
    return {f"faults/{name}": count for name, count in counts.items()}


def guard_of(config: LearnerConfig, terms: Sequence[str]) -> NonFiniteGuard:
  """Returns the guard of updates from replay, with the limit `learner.max_skipped_updates`."""
  limit = config.max_skipped_updates
  return NonFiniteGuard(terms, limit, f"learner.max_skipped_updates={limit}")
