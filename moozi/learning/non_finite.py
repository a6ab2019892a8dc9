"""Updates skipped since something in them was not finite: how many in a row."""

import collections
import logging
from collections.abc import Sequence

import numpy as np

from moozi.core.errors import NotFiniteError

_log = logging.getLogger("moozi.learner")


class NonFiniteGuard:
  """Counts updates that were skipped, by the term that was not finite.

  Args:
    terms: names of the terms, in the order in which an update looks at them.
    limit: so many in a row are no accident.
    bound: the setting that says so, for the error.
  """

  def __init__(self, terms: Sequence[str], limit: int, bound: str) -> None:
    self._terms, self._limit, self._bound = terms, limit, bound
    self._in_a_row = 0

  def reset(self) -> None:
    """None were skipped in a row so far."""
    self._in_a_row = 0

  def tell(self, bad_term: np.ndarray, first_step: int) -> dict[str, float]:
    """Logs the skipped ones among U updates.

    Args:
      bad_term: [U], `agent.finite.first_not_finite` of each.
      first_step: learner step before the first of them.
    Returns: `faults/not_finite_<name>`, how often each term was the first that was not finite.
    Raises: NotFiniteError: one too many in a row.
    """
    counts: collections.Counter[str] = collections.Counter()
    for step, code in enumerate(bad_term.tolist(), start=first_step):
      self._in_a_row = self._in_a_row + 1 if code >= 0 else 0
      if code < 0:
        continue
      term = self._terms[code]
      counts[f"faults/not_finite_{term.rpartition('/')[2]}"] += 1
      _log.warning("the update after learner step %d is skipped: %s is not finite", step, term)
      if self._in_a_row >= self._limit:
        raise NotFiniteError(
          f"{term} is not finite: {self._in_a_row} updates in a row were skipped, the last "
          f"after learner step {step}; {self._bound} allows no more"
        )
    return dict(counts)
