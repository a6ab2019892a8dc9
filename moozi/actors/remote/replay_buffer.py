"""The replay buffer's actor: a thin wrapper of a `Replay` (the thesis §4.3.14). Imports no JAX."""

import sys
from collections.abc import Mapping
from typing import Any

from moozi.actors.remote import process
from moozi.actors.shard_ledger import ShardReport
from moozi.core.config import Config
from moozi.core.histogram import Histogram
from moozi.core.pytree import fields_of
from moozi.core.records import RootSpan, SearchedRoots, SearchRoots, TrainTarget, TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.replay.shards import DrawnRows, DrawRequest, ReplayShard, lanes_of
from moozi.replay.validation import AddResult


class ReplayActor(process.Actor):
  """Stores segments and makes targets.

  Args:
    config, setup: as in `process.Actor`.
    spec: the environment's specification.
    snapshot: a Snapshot to restore; None starts empty.
    stored: number of steps in each lane that `fill_lane` will add; None if there are no stored trajectories.
    shard: index of the shard that this actor stores; None if it stores the steps of all workers.
  """

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    snapshot: Any,
    stored: Mapping[int, int] | None,
    shard: int | None = None,
    *,
    setup: process.Setup,
  ) -> None:
    super().__init__(config, setup)
    from moozi.replay.mixture import StoredReplay, make_replay

    self._lanes_per_worker = config.workers.num_envs
    self._segment_steps = config.workers.num_envs * config.workers.segment_length
    self._has_added = False
    # By first lane, the number of the worker's next segment if none is lost.
    self._next_numbers: dict[int, int] = {}
    self._reanalyze = config.reanalyze
    self._batch_size = config.learner.batch_size
    self._num_batches = config.learner.updates_per_call
    self._stored = None if stored is None else StoredReplay(config, spec, stored)
    self._shard = None if shard is None else ReplayShard(config, spec, shard)
    self._replay = self._shard or make_replay(config, spec, self._stored)
    self._message = ""
    if snapshot is not None:
      lost = self._replay.restore(snapshot)
      name = "replay" if shard is None else f"shard {shard} of replay"
      self._message = f"; {name} holds {self._replay.num_steps:,} steps" + (
        f", {lost:,} fewer than before" if lost else ""
      )
    num_lanes = len(lanes_of(config)[shard or 0])
    self._log.info("ready: %d lanes%s", num_lanes, self._message)

  def ready(self) -> tuple[ShardReport, str]:
    """Returns (a report, a message about the restored steps)."""
    return self._report(), self._message

  def _report(self) -> ShardReport:
    return ShardReport(self._replay.can_sample(self._batch_size), self._replay.supply())

  def snapshot(self, known: Any) -> Any:
    """Returns a Snapshot without the blocks that the caller has; `known` holds their generations."""
    with self._work.doing("checkpoint"):
      return self._replay.snapshot(known)

  def add(
    self, segment: TrajectorySample, first_lane: int, number: int
  ) -> tuple[ShardReport, dict[str, float], AddResult]:
    """Stores or refuses a segment [T, B, …]; returns (a report, statistics, outcome).

    `number` counts the worker's segments. If it does not follow that of the worker's last segment here, the
    lanes drop steps until an episode starts.
    """
    with self._work.doing("add"):
      if number != self._next_numbers.get(first_lane):
        self._replay.await_first(first_lane, self._lanes_per_worker)
      self._next_numbers[first_lane] = number + 1
      added = self._replay.add_or_refuse(segment, first_lane, self._lanes_per_worker, self._segment_steps)
      if added.num_lost:
        self._log.warning("%s", added.describe(first_lane // self._lanes_per_worker))
      if not self._has_added:
        self._has_added = True
        self._log.info("first segment stored; JAX loaded: %s", "jax" in sys.modules)
      return self._report(), self._replay.stats(), added

  def stats(self) -> dict[str, float]:
    """Returns statistics for the metrics."""
    with self._work.doing("stats"):
      return self._replay.stats()

  def fill_lane(self, where: str, lane: int, steps: TrajectorySample) -> None:
    """Adds the next steps [T, …] of a lane of stored trajectories; `where` names them in errors."""
    assert self._stored is not None, "replay was made without stored trajectories"
    self._stored.add_stored(lane, steps, where)

  def sample(self, discount: float, request: DrawRequest | None = None) -> TrainTarget | DrawnRows:
    """Draws targets [U, B, …] with this discount for one call of the parameter server.

    A shard draws the rows of a request.
    """
    with self._work.doing("sample"):
      self._replay.set_discount(discount)
      if request is None:
        return self._replay.sample_many(self._num_batches, self._batch_size)
      assert self._shard is not None, "replay is not in shards"
      return self._shard.draw(request)

  def positions(self, version: int) -> SearchRoots | list[RootSpan]:
    """Returns positions for one call of a reanalyze worker with parameters of learner step `version`."""
    with self._work.doing("positions"):
      return self._replay.positions(self._reanalyze, version)

  def write_back(self, searched: SearchedRoots) -> ShardReport:
    """Writes back a reanalyze worker's results; returns a report."""
    with self._work.doing("write back"):
      self._replay.write_back(**fields_of(searched))
      return self._report()

  def update_priorities(self, priorities: Any) -> ShardReport:
    """Sets δ of the steps in a batch after its update; returns a report."""
    with self._work.doing("priorities"):
      self._replay.update_priorities(priorities.slot, priorities.sequence, priorities.delta)
      return self._report()

  def histograms(self) -> dict[str, Histogram]:
    """Returns histograms of the priorities by name."""
    with self._work.doing("histograms"):
      return self._replay.histograms()
