"""Measures what Ray and the driver's calls cost around a segment and around a call of the learner.

The calls are those of `segments` and `updates`, with actors that only receive and return.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from moozi.actors import cluster
from moozi.actors.calls import Calls
from moozi.core.config import Config
from moozi.io.machine import processor_seconds

_IN_FLIGHT = 4
_WARM_UP_CALLS = 8


class PassCost(NamedTuple):
  """Processor seconds of one passage: of the driver's process, and of all processes with Ray's own."""

  driver_s: float
  total_s: float


class Passer:
  """An actor that returns what it was made with.

  Args:
    value: the first of the two results of `give`.
  """

  def __init__(self, value: Any) -> None:
    self._value = value

  def give(self, *received: Any) -> tuple[Any, dict[str, float]]:
    """Returns (the value, metrics) as two Ray objects."""
    return self._value, {f"metric/{number}": 0.0 for number in range(12)}

  def keep(self) -> Any:
    """Returns the value."""
    return self._value

  def take(self, *received: Any) -> int:
    """Returns the number of objects received."""
    return len(received)


def measure_passing(
  config: Config, segment: Any, targets: Any, priorities: Any, seconds: float
) -> tuple[PassCost, PassCost]:
  """Returns the costs of passing a segment and of passing the targets of a learner's call.

  Args:
    segment: what a training worker returns; the object's size matters, not its content.
    targets, priorities: what replay sends to the learner and what comes back; None for on-policy algorithms,
      whose segments go to the learner: the second cost is then that of their own calls without objects.
    seconds: duration of each of the two measurements.

  Raises: UserError: as `cluster.started`.
  """
  with cluster.started(config.ray) as ray:
    make = ray.remote(num_cpus=0)(Passer).remote
    # An object in the store, which each call receives, as the parameters are.
    parameters = ray.put((segment, 0))
    worker, replay, server = make(segment), make(targets), make(priorities)
    calls = Calls(ray)

    def pass_segment(done: Callable[[Any], list[Any]]) -> None:
      given, acted = worker.give.options(num_returns=2).remote(parameters, 0)

      def on_acted(_: Any) -> list[Any]:
        calls.expect(replay.take.remote(given, 0, 0), None, done)
        return []

      calls.expect(acted, None, on_acted)

    def pass_batch(done: Callable[[Any], list[Any]]) -> None:
      batch = replay.keep.remote()
      new, metrics = server.give.options(num_returns=2).remote(batch)

      def on_updated(_: Any) -> list[Any]:
        calls.expect(replay.take.remote(new), None, done)
        return []

      calls.expect(metrics, None, on_updated)

    return _cost(calls, pass_segment, seconds), _cost(calls, pass_batch, seconds)


def _cost(calls: Calls, begin: Callable[[Callable[[Any], list[Any]]], None], seconds: float) -> PassCost:
  """Keeps a few passages in flight for some seconds, and returns the cost of one."""
  count, end_s = 0, 0.0

  def done(_: Any) -> list[Any]:
    nonlocal count
    count += 1
    if count < _WARM_UP_CALLS or time.monotonic() < end_s:
      begin(done)
    return []

  for _ in range(_IN_FLIGHT):
    begin(done)
  while count < _WARM_UP_CALLS:
    _react(calls)
  first, own, total = count, time.process_time(), _total()
  end_s = time.monotonic() + seconds
  # The passages that end after this time are counted too: all their costs are in the sums.
  while time.monotonic() < end_s:
    if not calls:
      begin(done)
    _react(calls)
  while calls:
    _react(calls)
  passed = max(1, count - first)
  return PassCost((time.process_time() - own) / passed, (_total() - total) / passed)


def _react(calls: Calls) -> None:
  for call, value, error in calls.completed(timeout_s=1.0):
    if error is not None:
      raise error
    list(call.on_result(value))


def _total() -> float:
  return sum(seconds for _, seconds in processor_seconds().values())
