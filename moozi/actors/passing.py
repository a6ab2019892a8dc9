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
  """Processor seconds of one passage.

  Attributes:
    driver_s: those of the driver's process.
    total_s: those of this process and its descendants, among them Ray's processes.
  """

  driver_s: float
  total_s: float


class Passing(NamedTuple):
  """The costs of passing objects in a run.

  Attributes:
    segment: the cost of passing a segment.
    batch: the cost of passing the targets and the priorities of a learner's call.
    idle_cores: processor seconds per second of the same processes while nothing is passed.
  """

  segment: PassCost
  batch: PassCost
  idle_cores: float


class Passer:
  """An actor that takes the place of a worker, of replay or of the parameter server.

  Args:
    value: the result of `keep`, and the first of the two results of `give`.
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
  config: Config,
  segment: Any,
  targets: Any,
  priorities: Any,
  seconds: float,
  pauses_s: tuple[float, float] = (0.0, 0.0),
) -> Passing:
  """Returns the costs of passing a segment and of passing the targets of a learner's call.

  Args:
    segment: what a training worker returns; only the size of the object matters.
    targets, priorities: what replay sends to the learner, and what the learner returns. None for on-policy
      algorithms, whose segments go to the learner; the second cost is then that of the calls alone.
    seconds: minimum duration of each of the three measurements.
    pauses_s: pauses after each segment, and after each call of the learner, in seconds; with 0, four are
      passed at a time.

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

    for begin in (pass_segment, pass_batch):  # processes and connections start with the first calls
      _pass_some(calls, begin, _WARM_UP_CALLS)
    begin_s, total_s = time.monotonic(), _total()
    time.sleep(seconds)
    idle_cores = (_total() - total_s) / max(time.monotonic() - begin_s, 1e-9)
    segment_cost, batch_cost = (
      _cost(calls, begin, seconds, pause_s, idle_cores)
      for begin, pause_s in zip((pass_segment, pass_batch), pauses_s, strict=True)
    )
    return Passing(segment_cost, batch_cost, idle_cores)


_Begin = Callable[[Callable[[Any], list[Any]]], None]


def _cost(calls: Calls, begin: _Begin, seconds: float, pause_s: float, idle_cores: float) -> PassCost:
  """Passes objects for some seconds; returns the cost of one passage, without that of idle processes."""
  count, begin_s = 0, time.monotonic()
  own, total = time.process_time(), _total()
  while not count or time.monotonic() < begin_s + seconds:
    count += _pass_some(calls, begin, 1 if pause_s else _IN_FLIGHT)
    time.sleep(pause_s)
  elapsed_s = time.monotonic() - begin_s
  total_s = _total() - total - idle_cores * elapsed_s
  driver_s = (time.process_time() - own) / count
  return PassCost(driver_s, max(driver_s, total_s / count))


def _pass_some(calls: Calls, begin: _Begin, count: int) -> int:
  """Makes some passages at the same time, and returns their number."""
  for _ in range(count):
    begin(lambda _: [])
  while calls:
    _react(calls)
  return count


def _react(calls: Calls) -> None:
  for call, value, error in calls.completed(timeout_s=1.0):
    if error is not None:
      raise error
    list(call.on_result(value))


def _total() -> float:
  return sum(seconds for _, seconds in processor_seconds().values())
