"""Joins the requests of several threads into batches, with a bound on their size and on the wait."""

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


@dataclasses.dataclass(eq=False)
class _Pending(Generic[Q]):
  """A request that waits for its outcome: a tuple of the answer, or the error of its batch."""

  request: Q
  since_s: float
  outcome: Any = None


class Batcher(Generic[Q, A]):
  """Answers requests in batches, one batch at a time; each thread waits for the answer of its request.

  A batch has the oldest requests. It begins when `max_size` requests wait, or when the oldest has waited for
  `max_wait_s`, but not before the previous batch has ended. The thread of the oldest request computes it.

  The size of a batch is the largest of 1, 2, 4, … and `max_size` that does not exceed the number of waiting
  requests. This keeps the number of compiled functions small, and no batch is padded.

  Args:
    answer: (requests, seconds that each has waited) → answers, in the same order.
    max_size: maximum number of requests in a batch.
    max_wait_s: maximum wait of a request while no batch is computed.
  """

  def __init__(
    self,
    answer: Callable[[Sequence[Q], Sequence[float]], Sequence[A]],
    max_size: int,
    max_wait_s: float,
  ) -> None:
    self._answer, self._max_size, self._max_wait_s = answer, max_size, max_wait_s
    self._sizes = sizes(max_size)
    self._changed = threading.Condition()
    self._waiting: collections.deque[_Pending[Q]] = collections.deque()
    self._is_busy = False

  def ask(self, request: Q) -> A:
    """Returns the answer to a request. Raises what `answer` raised for its batch."""
    own = _Pending(request, time.monotonic())
    with self._changed:
      self._waiting.append(own)
      self._changed.notify_all()
      while own.outcome is None:
        left_s = own.since_s + self._max_wait_s - time.monotonic()
        if self._is_busy or self._waiting[0] is not own:
          self._changed.wait()
        elif len(self._waiting) < self._max_size and left_s > 0:
          self._changed.wait(left_s)
        else:
          self._answer_batch()
    if isinstance(own.outcome, Exception):
      raise own.outcome
    out: A = own.outcome[0]
    return out

  def _answer_batch(self) -> None:
    """Answers the oldest requests; other threads can add requests meanwhile."""
    size = max(size for size in self._sizes if size <= len(self._waiting))
    batch = [self._waiting.popleft() for _ in range(size)]
    begin_s = time.monotonic()
    self._is_busy = True
    self._changed.release()
    outcomes: list[Any]
    try:
      answers = self._answer([p.request for p in batch], [begin_s - p.since_s for p in batch])
      outcomes = [(answer,) for answer in answers]
    except Exception as error:
      outcomes = [error] * size
    finally:
      self._changed.acquire()
      self._is_busy = False
      self._changed.notify_all()
    for pending, outcome in zip(batch, outcomes, strict=True):
      pending.outcome = outcome


def sizes(max_size: int) -> list[int]:
  """Returns the numbers of requests that a batch can have: powers of two below `max_size`, and `max_size`."""
  return [*(2**i for i in range(max_size.bit_length()) if 2**i < max_size), max_size]
