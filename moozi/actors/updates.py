"""Learning as the driver sees it: batches in flight, the newest parameters, and where they go back."""

import functools
from collections.abc import Callable
from typing import Any

from moozi.actors.calls import Calls
from moozi.actors.pool import ActorPool
from moozi.actors.versions import Versions
from moozi.core.actor_report import REPLAY, SERVER
from moozi.core.config import Config
from moozi.core.errors import NotFiniteError
from moozi.run.events import Event, Updated
from moozi.run.pacing import Pacer
from moozi.run.rollback import Rollback
from moozi.run.schedules import Every


class Updates:
  """Keeps the parameter server busy with bounded work in flight, as far as pacing allows.

  Args:
    crew: the actors.
    calls: the driver's.
    config: the run's configuration.
    pacer: says when another batch may be asked for.
    counters: what every event says.
    learner_steps: updates made before the first.
    on_updated: called with the learner step after each batch that was learned from.
    on_gone_back: called with the number of learner steps that are skipped, before they are, where the server
      has older parameters again.

  Attributes:
    versions: learner steps, as they were told.
    parameters: a reference to the newest ones that workers are to have; None before `publish_now`.
    replay_stats: replay's newest figures, which are told with an update.
  """

  def __init__(
    self,
    pool: ActorPool,
    calls: Calls,
    config: Config,
    pacer: Pacer,
    counters: Callable[[], dict[str, Any]],
    learner_steps: int,
    on_updated: Callable[[int], None],
    on_gone_back: Callable[[int], None],
  ) -> None:
    self._pool, self._calls, self._config = pool, calls, config
    self._pacer, self._counters = pacer, counters
    self._on_updated_by_others, self._on_gone_back = on_updated, on_gone_back
    self.versions = Versions(learner_steps, config.learner.updates_per_call, config.ray.batches_in_flight)
    self.parameters: Any = None
    self.replay_stats: dict[str, float] = {}
    self._rollback = Rollback(pool.latest)
    self._publications = Every(config.ray.publish_period_updates, start=learner_steps)
    self._is_publishing = False
    self._in_flight = 0
    # Calls to a parameter server that has been set back, or has died, are known by an older one.
    self._epoch = 0

  def ask(self, can_sample: bool) -> None:
    """Gives the parameter server as many batches as it may have in flight."""
    while self._in_flight < self._config.ray.batches_in_flight and self._pacer.may_learn(can_sample):
      self._pacer.ask_learn()
      self._in_flight += 1
      targets = self._pool.replay.sample.remote()
      priorities, metrics = self._pool.server.update.options(num_returns=2).remote(targets)
      self._calls.expect(
        metrics,
        SERVER,
        functools.partial(self._on_updated, priorities, self._epoch),
        functools.partial(self._on_lost, self._epoch),
      )

  def publish_now(self) -> Any:
    """Has workers take what the parameter server has next, and returns the reference to it."""
    self.parameters = self._pool.server.parameters.remote()
    return self.parameters

  def on_server_restarted(self, found: int) -> int:
    """A new parameter server goes on with the parameters of learner step `found`.

    Returns: the updates lost by that.
    """
    self._epoch += 1
    return self._go_on_from(found)

  def _on_updated(self, priorities: Any, epoch: int, metrics: dict[str, float]) -> list[Event]:
    if epoch != self._epoch:
      return self._on_lost(epoch, None)
    learner = self._config.learner
    if self._config.replay.refreshes_priorities:
      self._calls.expect(self._pool.replay.update_priorities.remote(priorities), REPLAY)
    metrics = metrics | {"system/batches_in_flight": self._in_flight}
    self._in_flight -= 1
    self._pacer.done_learn()
    self.versions.add_call()
    if self._publications.is_due(self.versions.now):
      self._publish()
      if not self._config.num_acting_workers:
        # Nobody stores segments, which would bring them.
        self._calls.expect(self._pool.replay.stats.remote(), REPLAY, self._on_stats)
    self._on_updated_by_others(self.versions.now)
    return [
      Updated(
        **self._counters(),
        metrics=metrics | self.replay_stats,
        num_samples=learner.batch_size * learner.updates_per_call,
        sample_reuse=self._pacer.sample_reuse,
      )
    ]

  def _on_stats(self, stats: dict[str, float]) -> list[Event]:
    self.replay_stats = stats
    return []

  def _publish(self) -> None:
    """Takes the newest parameters as one object, however many workers will read it."""
    if not self._is_publishing:
      self._is_publishing = True
      reference, epoch = self._pool.server.parameters.remote(), self._epoch
      self._calls.expect(
        reference, SERVER, lambda _: self._on_published(reference, epoch), lambda _: self._on_published()
      )

  def _on_published(self, reference: Any = None, epoch: int | None = None) -> list[Event]:
    self._is_publishing = False
    # Parameters of before the server went back would be older ones for the workers.
    if epoch == self._epoch:
      self.parameters = reference
    return []

  def _on_lost(self, epoch: int, error: Any) -> list[Event]:
    self._in_flight -= 1
    self._pacer.undo_learn()
    # Calls that were queued behind the one that failed: what they did is gone too, or they fail as well.
    if isinstance(error, NotFiniteError) and epoch == self._epoch:
      return self._go_back(error)
    return []

  def _go_back(self, error: NotFiniteError) -> list[Event]:
    """Once in a run: parameters that give nothing but NaN make room for those of the last checkpoint."""
    back = self._rollback.take(error, self.versions.free)
    self._epoch += 1
    self._pool.server.set_state.remote(back.training)
    lost_updates = self._go_on_from(back.found)
    return [back.fault(self._counters(), lost_updates)]

  def _go_on_from(self, found: int) -> int:
    """The server has the parameters of learner step `found` again; returns the updates lost by that."""
    self._on_gone_back(self.versions.free - self.versions.now)
    lost = self.versions.go_back(found)
    self.publish_now()
    return lost
