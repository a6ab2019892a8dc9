"""The driver's ledger: counters, versions and epochs of the run, and the work in flight at each actor.

The ledger calls no actor and reads no clock. Each method applies one change to all counters that the change
affects. The ledger of on-policy runs is in `round_ledger`.
"""

import abc
import collections
from typing import Any, NamedTuple

from moozi.actors.shard_ledger import ShardLedger
from moozi.core.config import Config
from moozi.core.flat_state import State, part, prefixed
from moozi.ops.schedules import discount_at
from moozi.replay.shard_snapshots import added_by_shard
from moozi.replay.shards import lanes_of
from moozi.run.gate import make_gate
from moozi.run.pacing import Pacer, slack_steps
from moozi.run.past_selves import PastSelves
from moozi.run.schedules import Every
from moozi.run.state import RunState


class Target(NamedTuple):
  """Parameters of the target network for the reanalyze workers.

  Attributes:
    parameters: reference to (variables, version).
    version: see `Learner.target_version`.
  """

  parameters: Any
  version: int


class RunLedger(abc.ABC):
  """The counters that every run with actors has.

  Args:
    config: the run's configuration.
    state: the state that the run starts from, if any.

  Attributes:
    config: the run's configuration.
    learner_steps: the newest learner step reported. Versions never repeat: a rollback, or a restart of the
      parameter server, increases the learner step beyond every version that a worker can have seen.
    parameter_epoch: incremented when older parameters are restored, by a rollback or a restart of the
      parameter server. Updates requested in an older epoch are lost.
    cold_workers: indices of the training workers that compile acting.
    parameters: reference to the newest published (variables, version); with a gate, to those that act.
    state_request: number of the newest request for a run state, which `drop_state` also increments; states
      of older requests are dropped.
    is_state_pending: whether a requested state is not complete yet.
    has_final_state: whether the newest complete state was requested as the final one.
    evaluation: reference to the pending evaluation's result; None if none is pending.
    is_final_evaluation_due: whether the final evaluation is due and not requested yet.
    past: the pool of past selves; None without past selves.
    gate: the gate for new parameters; None without one.
    past_parameters: by index of the training worker, the version of its past self and a reference to the past
      self's parameters.
  """

  def __init__(self, config: Config, state: RunState | None = None) -> None:
    self.config = config
    self.learner_steps = 0 if state is None else state.learner_steps
    self._rewound_at = self.learner_steps
    self.parameter_epoch = 0
    self.cold_workers: set[int] = set()
    self.parameters: Any = None
    self.state_request = 0
    self.is_state_pending = self.has_final_state = False
    self.evaluation: Any = None
    self.is_final_evaluation_due = False
    self.past = PastSelves(config) if config.num_past_lanes else None
    if self.past is not None and state is not None and state.progress:
      self.past.set_state(part(state.progress, "past_selves"), state.training.variables)
    self.past_parameters: dict[int, tuple[int, Any]] = {}
    self.gate = make_gate(config, state)

  @property
  @abc.abstractmethod
  def env_steps(self) -> int:
    """Environment steps received so far."""

  @property
  @abc.abstractmethod
  def sample_reuse(self) -> float:
    """As in `run.session.Trainer`."""

  @property
  @abc.abstractmethod
  def next_free_version(self) -> int:
    """A learner step that no worker can have seen as a version."""

  @abc.abstractmethod
  def is_complete(self, has_calls: bool) -> bool:
    """Returns whether acting and learning are complete.

    Args:
      has_calls: whether calls are in flight.
    """

  @abc.abstractmethod
  def get_state(self) -> State:
    """Returns the ledger's counters for `RunState.progress`."""

  @property
  def segment_steps(self) -> int:
    """Number of environment steps in a segment, over all its lanes."""
    return self.config.worker_envs * self.config.segment_length

  def rewind(self, found: int) -> int:
    """Rolls back to the parameters of learner step `found`, which become version `next_free_version`.

    Drops a pending state, which would mix the parameters with newer counters.

    Returns: the number of discarded updates: all that were reported after learner step `found`, except those
      that an earlier rollback discarded.
    """
    lost = max(0, self.learner_steps - max(found, self._rewound_at))
    self.parameter_epoch += 1
    self.drop_state()
    self.learner_steps = self._rewound_at = self.next_free_version
    return lost

  def begin_state(self) -> int:
    """Marks a state as pending, and returns the number of the request."""
    self.is_state_pending = True
    self.state_request += 1
    return self.state_request

  def drop_state(self) -> None:
    """Drops the pending state, if any."""
    self.is_state_pending = False
    self.state_request += 1


class Ledger(RunLedger):
  """Counters, versions, epochs and work in flight of one run that learns from replay.

  Args:
    config, state: as in `RunLedger`.

  Attributes:
    pacer: numbers of steps, samples and positions that are requested and done.
    shards: what each shard of replay can give, and the steps that it received and stored.
    segments_in_flight, searches_in_flight: number of unfinished calls by index of the training or reanalyze
      worker.
    segments_requested: number of segments ever requested, by index of the training worker.
    last_requests: by index of the training worker, the number of all segments requested up to its newest.
    batches_in_flight: number of unfinished calls of `ParameterServer.update`.
    target: the newest published target network; None before the first one arrives.
    is_publishing: whether a publication of the parameters is pending.
    publications, target_copies: schedules for publishing the parameters and the target network.
    kept: by index of the training worker, the number of its newest segment for `trajectories.save`.
    The others are as in `RunLedger`.
  """

  def __init__(self, config: Config, state: RunState | None = None) -> None:
    super().__init__(config, state)
    self.pacer = Pacer(config, slack_steps(config))
    if state is not None and state.progress:
      self.pacer.set_state(part(state.progress, "pacer"))
    self._first_step, self._first_samples = self.learner_steps, self.pacer.learn.done
    replay = None if state is None else state.replay
    added = None if replay is None else added_by_shard(replay, lanes_of(config))
    self.shards = ShardLedger(config, added, self.env_steps)
    self.segments_in_flight: collections.Counter[int] = collections.Counter()
    self.searches_in_flight: collections.Counter[int] = collections.Counter()
    self.segments_requested: collections.Counter[int] = collections.Counter()
    self.last_requests: collections.Counter[int] = collections.Counter()
    self.batches_in_flight = 0
    self.target: Target | None = None
    self.is_publishing = False
    self.publications = Every(config.ray.publish_period_updates, start=self.learner_steps)
    learner = config.learner
    # A moving average changes at each update, as the parameters do.
    period = config.ray.publish_period_updates if learner.target_decay else learner.target_update_period
    self.target_copies = Every(period, start=self.learner_steps)
    self.kept: collections.Counter[int] = collections.Counter()

  @property
  def env_steps(self) -> int:
    return self.pacer.env_steps

  @property
  def sample_reuse(self) -> float:
    return self.pacer.sample_reuse

  @property
  def discount(self) -> float:
    """γ of the targets that are drawn now."""
    targets = self.config.targets
    return discount_at(targets.discount, targets.discount_schedule, self.env_steps)

  def get_state(self) -> State:
    return prefixed("pacer", self.pacer.get_state())

  # --- segments -------------------------------------------------------------------------------------

  def begin_segment(self, index: int) -> int:
    """Counts a requested segment of training worker `index`; returns the segment's number: 1, 2, …"""
    self.pacer.request_act(self.segment_steps)
    self.segments_in_flight[index] += 1
    self.segments_requested[index] += 1
    self.last_requests[index] = self.segments_requested.total()
    return self.segments_requested[index]

  def store_segment(self, num_lost: int, index: int = 0) -> None:
    """Counts a segment of training worker `index` that replay has received.

    Args:
      num_lost: number of its steps that were not stored.
    """
    self.pacer.done_act(self.segment_steps, num_lost)
    self.shards.store(self.shards.of(index), self.segment_steps, num_lost)

  # --- updates --------------------------------------------------------------------------------------

  @property
  def may_learn(self) -> bool:
    """Whether another batch may be requested."""
    has_room = self.batches_in_flight < self.config.ray.batches_in_flight
    return has_room and self.pacer.may_learn(self.shards.can_sample)

  @property
  def next_free_version(self) -> int:
    return self.learner_steps + (self.config.ray.batches_in_flight + 1) * self.config.learner.updates_per_call

  def begin_updates(self) -> None:
    """Counts a requested batch."""
    self.pacer.learn.request()
    self.batches_in_flight += 1

  def finish_updates(self) -> None:
    """Counts the completed updates of a batch."""
    self.batches_in_flight -= 1
    self.pacer.learn.finish()
    self.learner_steps += self.config.learner.updates_per_call

  def drop_updates(self) -> None:
    """Counts the updates of a batch as lost; the driver requests others instead."""
    self.batches_in_flight -= 1
    self.pacer.learn.undo()

  def rewind(self, found: int) -> int:
    # The skipped versions consume no samples.
    self._first_step += self.next_free_version - self.learner_steps
    return super().rewind(found)

  # --- reanalyze ------------------------------------------------------------------------------------

  def begin_search(self, index: int) -> None:
    """Counts a requested call of reanalyze worker `index`."""
    self.pacer.reanalyze.request()
    self.searches_in_flight[index] += 1

  def finish_search(self, index: int, num_positions: int) -> None:
    """Counts a completed reanalyze call, which searched `num_positions`."""
    self.searches_in_flight[index] -= 1
    self.pacer.reanalyze.finish(num_positions)

  def waive_search(self, index: int) -> None:
    """Counts a completed reanalyze call for which replay had no position."""
    self.searches_in_flight[index] -= 1
    self.pacer.reanalyze.waive()

  def drop_search(self, index: int) -> None:
    """Counts a reanalyze call as lost; the driver requests another one instead."""
    self.searches_in_flight[index] -= 1
    self.pacer.reanalyze.undo()

  # --- states ---------------------------------------------------------------------------------------

  def samples_at(self, learner_step: int) -> int:
    """Returns the number of samples consumed when the parameter server is at `learner_step`."""
    return self._first_samples + (learner_step - self._first_step) * self.config.learner.batch_size

  def restart_replay(self, num_added: int, shard: int = 0) -> int:
    """Starts a new epoch of a shard after its restart, and returns the number of steps lost.

    Drops a pending state. Segments in flight to the shard become obsolete, and nothing is drawn from it until
    it reports. `num_added` is the number of steps ever added to the restarted shard.
    """
    self.drop_state()
    return self.shards.restart(shard, num_added)

  # --- the end --------------------------------------------------------------------------------------

  def is_complete(self, has_calls: bool) -> bool:
    """Returns whether learning is complete.

    Learning is also complete if nothing is left to learn from, as after a failure of replay without a
    snapshot: all steps were acted, no call is in flight, and replay cannot draw a batch.
    """
    is_replay_empty = self.pacer.has_all_steps and not self.shards.can_sample and not has_calls
    return self.pacer.is_complete or is_replay_empty
