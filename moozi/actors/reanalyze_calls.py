"""Reanalyze as the driver sees it: workers, calls in flight, and the target network's parameters."""

import functools
from collections.abc import Callable
from typing import Any

from moozi.actors.calls import Calls
from moozi.actors.pool import ActorPool
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER
from moozi.core.config import Config
from moozi.run.events import Event, Reanalyzed
from moozi.run.pacing import Pacer
from moozi.run.schedules import Every


class ReanalyzeCalls:
  """Keeps every reanalyze worker busy with bounded work in flight, as far as pacing allows.

  Args:
    crew: the actors; no reanalyze workers where reanalyze is off.
    calls: the driver's.
    config: the run's configuration.
    pacer: says when another call may be asked for.
    counters: what every event says.
    learner_steps: updates made before the first.
  """

  def __init__(
    self,
    pool: ActorPool,
    calls: Calls,
    config: Config,
    pacer: Pacer,
    counters: Callable[[], dict[str, Any]],
    learner_steps: int,
  ) -> None:
    self._pool, self._calls, self._pacer, self._counters = pool, calls, pacer, counters
    self._most = config.reanalyze.calls_in_flight
    self._in_flight = dict.fromkeys(pool.reanalyze_workers, 0)
    self._period = config.learner.target_update_period
    self._copies = Every(self._period, start=learner_steps)
    # Parameters, the learner step of the copy, and which publication of them it is.
    self._target: tuple[Any, int, int] | None = None
    self.publish()

  def ask(self, can_sample: bool) -> None:
    """Gives every worker as much work as it may have in flight, the emptiest queue first.

    Args:
      can_sample: replay can draw a batch: one that was made anew may be empty.
    """
    if not can_sample:
      return
    for index in sorted(self._in_flight, key=self._in_flight.__getitem__):
      while self._target is not None and self._in_flight[index] < self._most and self._pacer.may_reanalyze():
        self._ask(index, *self._target)

  def on_updated(self, learner_steps: int) -> None:
    """Takes the target network anew where it has been copied to."""
    # Before its first period is over it goes along with every update.
    if self._copies.is_due(learner_steps) or learner_steps < self._period:
      self.publish()

  def publish(self) -> None:
    """Takes the target network's parameters as one object, however many workers will read it."""
    if self._pool.reanalyze_workers:
      reference = self._pool.server.target_parameters.remote()
      self._calls.expect(reference, SERVER, lambda value: self._on_published(reference, value[2]))

  def _ask(self, index: int, parameters: Any, version: int, publication: int) -> None:
    self._pacer.ask_reanalyze()
    self._in_flight[index] += 1
    replay = self._pool.replay
    positions = replay.positions.remote(version)
    worker = self._pool.reanalyze_workers[index]
    searched, told = worker.run.options(num_returns=2).remote(parameters, publication, positions)
    self._calls.expect(
      told,
      f"{REANALYZE_WORKER}_{index}",
      functools.partial(self._on_searched, index, searched, replay),
      lambda _: self._on_lost(index),
    )

  def _on_published(self, reference: Any, version: int) -> list[Event]:
    self._target = reference, version, 0 if self._target is None else self._target[2] + 1
    return []

  def _on_searched(
    self, index: int, searched: Any, replay: Any, told: tuple[int, dict[str, float]]
  ) -> list[Event]:
    num_positions, metrics = told
    self._in_flight[index] -= 1
    if replay is self._pool.replay:
      # In a replay that was made anew meanwhile the same slots and numbers may be other steps.
      self._calls.expect(replay.write_back.remote(searched), REPLAY)
    self._pacer.done_reanalyze(num_positions)
    ratio = self._pacer.reanalyze_ratio
    return [Reanalyzed(**self._counters(), metrics=metrics, num_positions=num_positions, ratio=ratio)]

  def _on_lost(self, index: int) -> list[Event]:
    self._in_flight[index] -= 1
    self._pacer.undo_reanalyze()
    return []
