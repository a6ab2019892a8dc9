"""Segments on their way to whoever keeps them, each worker's in order."""

import collections
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

from moozi.actors.calls import Calls
from moozi.run.events import Collected, Event


class Collecting:
  """Waits for segments that replay took, and tells them.

  On one machine a segment is here when it is in replay; from another it must travel. Only `tell_all` waits.

  Args:
    calls: the driver's.
    counters: what every event says.
    num_envs: lanes of each worker.
  """

  def __init__(self, calls: Calls, counters: Callable[[], dict[str, Any]], num_envs: int) -> None:
    self._calls, self._counters, self._num_envs = calls, counters, num_envs
    # By worker: references and whether each follows the one before it.
    self._queues: dict[int, collections.deque[tuple[Any, bool]]] = collections.defaultdict(collections.deque)
    self._with_gap: set[int] = set()

  def add(self, index: int, name: str, segment: Any, is_whole: bool) -> None:
    """Takes a worker's next segment, in order; one that replay did not take whole leaves a gap.

    Args:
      index, name: the worker's.
      segment: the reference.
      is_whole: replay took all of it.
    """
    if not is_whole:
      self._with_gap.add(index)
      return
    self._queues[index].append((segment, index not in self._with_gap))
    self._with_gap.discard(index)
    if len(self._queues[index]) == 1:
      self._wait(index, name)

  def tell_all(self, timeout_s: float) -> Iterator[Event]:
    """Tells every segment that replay has taken and that is here by then; the others come when they come."""
    end_s = time.monotonic() + timeout_s
    while waiting := [queue[0][0] for queue in self._queues.values() if queue]:
      here = self._calls.ready(waiting, max(0.0, end_s - time.monotonic()))
      for reference in here:
        yield from self._calls.settle(reference)
      if not here:
        return

  def give_up(self) -> None:
    """Waits for none of them any more."""
    for index, queue in self._queues.items():
      if queue:
        self._calls.forget(queue[0][0])
        queue.clear()
        self._with_gap.add(index)

  def _wait(self, index: int, name: str) -> None:
    react = functools.partial(self._on_here, index, name)
    # Nobody's call: the worker's own may be given up while these still come.
    actor = f"a segment of {name}"
    self._calls.expect(self._queues[index][0][0], actor, react, lambda _: self._on_lost(index, name))

  def _on_here(self, index: int, name: str, segment: Any) -> list[Event]:
    _, follows = self._queues[index].popleft()
    self._go_on(index, name)
    first_lane = index * self._num_envs
    return [Collected(**self._counters(), segment=segment, first_lane=first_lane, follows=follows)]

  def _on_lost(self, index: int, name: str) -> list[Event]:
    queue = self._queues[index]
    queue.popleft()
    if queue:
      queue[0] = queue[0][0], False
    else:
      self._with_gap.add(index)
    self._go_on(index, name)
    return []

  def _go_on(self, index: int, name: str) -> None:
    if self._queues[index]:
      self._wait(index, name)
