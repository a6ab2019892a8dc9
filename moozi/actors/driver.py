"""The driver: the thesis's Algorithm 3 without its barrier.

It says who works when, on what, and where the result goes; nobody else does. Every call returns a
future; the driver keeps a bounded number of them at each actor and reacts as they complete. Where an actor
died, each of its calls is taken off the books, the actor is made anew, and what was lost is told.
`run.local` is the same algorithm in one process.
"""

import functools
import math
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from moozi.actors import cluster
from moozi.actors.calls import Calls
from moozi.actors.collecting import Collecting
from moozi.actors.observing import Observing
from moozi.actors.pool import ActorPool
from moozi.actors.reanalyze_calls import ReanalyzeCalls
from moozi.actors.states import States
from moozi.actors.testing import Testing
from moozi.actors.updates import Updates
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, WORKER
from moozi.core.config import Config
from moozi.core.errors import RunError
from moozi.core.flat_state import State, part, prefixed
from moozi.core.spec import EnvSpec
from moozi.replay.mixture import StoredTrajectories
from moozi.replay.validation import AddResult
from moozi.run.events import Acted, Event, Faulted, Finished, Started
from moozi.run.pacing import Pacer, slack_steps
from moozi.run.schedules import CheckpointSchedule, reason_to_end
from moozi.run.session import RunInputs
from moozi.run.state import RunState

_SALVAGE_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 10.0
# Kept segments may arrive so long after the state that they are in.
_TRAVEL_TIMEOUT_S = 5.0
# What is in flight may arrive so long after the run was told to stop.
_STOP_TIMEOUT_S = 5.0


def run(inputs: RunInputs) -> Generator[Event, None, None]:
  """Trains with Ray actors, and yields the events of `run.local.run`.

  Raises:
    UserError: the actors ask for more than the cluster has, or no cluster answers.
  """
  config, spec, state, stored = inputs.config, inputs.spec, inputs.state, inputs.stored
  log_dir, should_stop = inputs.log_dir, inputs.should_stop
  saved_blocks, latest = inputs.saved_blocks, inputs.latest
  start = time.monotonic() - (0.0 if state is None else state.wall_s)
  with cluster.connected(config) as ray:
    driver = _Driver(ray, config, spec, log_dir, should_stop, state, saved_blocks, latest, stored, start)
    yield from driver.run()


class _Driver:
  """The actors, the futures in flight, and what to do when each completes."""

  def __init__(
    self,
    ray: Any,
    config: Config,
    spec: EnvSpec,
    log_dir: str | None,
    should_stop: Callable[[], bool],
    state: RunState | None,
    saved_blocks: Callable[[], Any],
    latest: Callable[[], RunState | None],
    stored: StoredTrajectories | None,
    start: float,
  ) -> None:
    self._ray, self._config, self._should_stop, self._start = ray, config, should_stop, start
    self._pool = ActorPool(ray, config, spec, log_dir, state, latest, stored)
    self._calls = Calls(ray)
    progress = {} if state is None else state.progress
    env_steps = int(progress.get("pacer/env_steps", 0))
    self._segment_steps = config.workers.num_envs * config.workers.segment_length
    self._pacer = Pacer(config, slack_steps=slack_steps(config))
    if progress:
      self._pacer.set_state(part(progress, "pacer"))
    self._testing = Testing(ray, self._pool, self._calls, config.evaluation, self._counters, progress)
    self._states = States(
      self._pool, self._calls, config, saved_blocks, self._progress, self._tell_collected, state
    )
    learner_steps = 0 if state is None else int(state.training.learner_step)
    self._observing = Observing(ray, self._pool, config, self._counters, learner_steps)
    self._checkpoints = CheckpointSchedule(config.checkpoint, self._wall_s(), env_steps)
    self._can_sample = False
    self._updates = Updates(
      self._pool,
      self._calls,
      config,
      self._pacer,
      self._counters,
      learner_steps,
      on_updated=self._on_updated,
      on_gone_back=self._on_gone_back,
    )
    self._reanalyze_calls = ReanalyzeCalls(
      self._pool, self._calls, config, self._pacer, self._counters, learner_steps
    )
    self._collecting: Collecting | None = None
    if config.trajectories.save:
      self._collecting = Collecting(self._calls, self._counters, config.workers.num_envs)
    self._segments_at = dict.fromkeys(self._pool.workers, 0)
    # Segments of games that replay has lost the beginnings of are known by an older epoch.
    self._epoch = 0

  def run(self) -> Iterator[Event]:
    first = self._updates.publish_now()
    while not self._should_stop():
      if self._ray.wait([first], timeout=0.5)[0]:
        break
    self._can_sample, told = self._ray.get(self._pool.replay.ready.remote())
    yield Started(**self._counters(), message=f"{len(self._pool.workers)} training workers{told}")
    try:
      while (reason := self._reason_to_end()) is None:
        self._ask()
        yield from self._react(timeout_s=1.0)
        yield from self._observing.poll()
        self._ask_due()
      yield from self._finish(reason)
    except (self._ray.exceptions.RayError, RunError):
      yield from self._salvage()
      raise

  # --- asking -------------------------------------------------------------------------------------

  def _ask(self) -> None:
    """Gives every actor as much work as it may have in flight."""
    pacer, most = self._pacer, self._config.ray.segments_in_flight
    self._updates.ask(self._can_sample)
    self._reanalyze_calls.ask(self._can_sample)
    if not self._config.num_acting_workers:
      pacer.pass_steps(self._can_sample)
    # The emptiest queue first, so that no worker waits while another has two segments to make.
    for index in sorted(self._pool.workers, key=self._segments_at.__getitem__):
      while self._segments_at[index] < most and pacer.may_act(self._can_sample):
        self._ask_segment(index)

  def _ask_segment(self, index: int) -> None:
    # What goes to replay is sent when it is there: an actor takes its calls in order, and one that waits
    # for its argument would hold up all the sampling behind it.
    self._pacer.ask_act(self._segment_steps)
    self._segments_at[index] += 1
    worker = self._pool.workers[index]
    segment, acted = worker.run.options(num_returns=2).remote(self._updates.parameters, self._pacer.env_steps)
    self._calls.expect(
      acted,
      f"{WORKER}_{index}",
      functools.partial(self._on_acted, index, segment, self._epoch),
      lambda _: self._on_segment_lost(index),
    )

  # --- reacting -----------------------------------------------------------------------------------

  def _react(self, timeout_s: float) -> Iterator[Event]:
    """Waits for some calls and tells what they brought."""
    for call, value, error in self._calls.come(timeout_s):
      if error is None:
        self._pool.has_worked(call.actor)
        yield from call.react(value)
      else:
        yield from call.undo(error)
        yield from self._on_lost(error)

  def _on_acted(self, index: int, segment: Any, epoch: int, acted: Any) -> list[Event]:
    in_flight = sum(self._segments_at.values())
    self._segments_at[index] -= 1
    if epoch != self._epoch:
      return self._on_steps_lost(f"{WORKER}_{index}: a segment of games that replay has lost was left out")
    replay = self._pool.replay
    stored = replay.add.remote(segment, index * self._config.workers.num_envs)
    self._calls.expect(
      stored,
      REPLAY,
      functools.partial(self._on_stored, index, segment, replay),
      lambda _: self._on_steps_lost(f"{WORKER}_{index}: a segment was lost"),
    )
    return [
      Acted(
        **self._counters(),
        metrics=acted.metrics | {"system/segments_in_flight": in_flight},
        episode_returns=acted.episode_returns,
        episode_lengths=acted.episode_lengths,
        staleness=self._updates.versions.now - acted.version,
      )
    ]

  def _on_stored(
    self, index: int, segment: Any, replay: Any, value: tuple[bool, dict[str, float], AddResult]
  ) -> list[Event]:
    can_sample, self._updates.replay_stats, taken = value
    if replay is self._pool.replay:
      # What one that has died since could do, the new one may not.
      self._can_sample = can_sample
    if self._collecting is not None:
      self._collecting.add(index, f"{WORKER}_{index}", segment, is_whole=not taken.num_lost)
    self._pacer.done_act(self._segment_steps, taken.num_lost)
    if not taken.num_lost:
      return []
    if taken.refused is not None and index in self._pool.workers:
      # Replay waits for an episode's first step, and a good agent's episode may never end.
      self._calls.expect(self._pool.workers[index].reset.remote(), f"{WORKER}_{index}")
    self._states.not_added -= taken.num_lost
    return [Faulted(**self._counters(), counts=taken.faults, message=taken.describe(index))]

  def _on_updated(self, learner_steps: int) -> None:
    self._reanalyze_calls.on_updated(learner_steps)
    self._observing.on_updated(learner_steps)

  def _tell_collected(self) -> Iterator[Event]:
    """Segments that replay holds in a state are to be kept before it, or a resumed run's would have a gap."""
    if self._collecting is not None:
      yield from self._collecting.tell_all(_TRAVEL_TIMEOUT_S)

  # --- losses -------------------------------------------------------------------------------------

  def _on_segment_lost(self, index: int) -> list[Event]:
    self._segments_at[index] -= 1
    return self._on_steps_lost(f"{WORKER}_{index}: the segment in flight was lost")

  def _on_steps_lost(self, message: str) -> list[Event]:
    """A segment that replay will not have is asked for again; its steps were never counted."""
    self._pacer.undo_act(self._segment_steps)
    counts = {"dropped_steps": self._segment_steps}
    return [Faulted(**self._counters(), counts=counts, message=message)]

  def _on_lost(self, error: Any) -> list[Event]:
    """Makes the actor anew that an error tells of, unless that has been done."""
    name = self._pool.name_of(error) if isinstance(error, self._ray.exceptions.ActorDiedError) else None
    if name is None:
      return []
    restart = self._pool.restart(name, self._pacer.env_steps, self._updates.versions.free)
    if restart is None:
      most = self._config.ray.max_restarts
      raise RunError(
        f"{name} died, and ray.max_restarts={most} in a row allows no more; logs/{name}.log may say why"
      ) from error
    kind = name.rpartition("_")[0] if name.startswith((WORKER, REANALYZE_WORKER)) else name
    counts = {kind: 1}
    if name == SERVER:
      counts["lost_updates"] = self._updates.on_server_restarted(restart.learner_steps)
    if name == REPLAY:
      if self._config.num_acting_workers:
        counts["lost_steps"] = self._pacer.env_steps + self._states.not_added - restart.num_added
      self._states.forget()
      self._states.not_added = restart.num_added - self._pacer.env_steps
      self._begin_games_anew()
    if not restart.is_back:
      self._segments_at[int(name.rpartition("_")[2])] = 0
    return [Faulted(**self._counters(), counts=counts, message=restart.message)]

  def _on_gone_back(self, num_skipped: int) -> None:
    """The parameter server has older parameters: states asked for would mix them with newer ones."""
    self._states.forget()
    self._states.skip_versions(num_skipped)
    self._reanalyze_calls.publish()

  def _begin_games_anew(self) -> None:
    """After replay went back: what goes on from there on would not follow what it has."""
    self._epoch += 1
    self._can_sample = False
    for index, worker in self._pool.workers.items():
      self._calls.expect(worker.reset.remote(), f"{WORKER}_{index}")

    replay = self._pool.replay

    def on_ready(value: tuple[bool, str]) -> list[Event]:
      if replay is self._pool.replay:
        self._can_sample = value[0]
      return []

    self._calls.expect(replay.ready.remote(), REPLAY, on_ready)

  # --- what is due --------------------------------------------------------------------------------

  def _ask_due(self) -> None:
    """Asks for a checkpoint and an evaluation where their time has come."""
    if not self._states.is_asked and self._checkpoints.is_due(self._wall_s(), self._pacer.env_steps):
      self._states.ask(is_final=False)
    self._testing.ask_due(self._updates.parameters, self._pacer.env_steps)

  def _reason_to_end(self) -> str | None:
    # A replay that died without a snapshot when all steps were made has nothing for anyone any more.
    is_bereft = self._pacer.has_all_steps and not self._can_sample and not self._calls
    is_complete = self._pacer.is_complete or is_bereft
    return reason_to_end(is_complete, self._should_stop(), self._wall_s(), self._config.max_wall_s)

  def _finish(self, reason: str) -> Iterator[Event]:
    """Lets the work in flight arrive, takes the last state, and evaluates it.

    Whoever was told to stop waits for no evaluation, and not long for workers: the checkpoint comes first.
    """
    if reason != "stopped":
      # An evaluation may be under way, and take long.
      yield from self._drain(until_stopped=True)
      reason = "stopped" if self._should_stop() else reason
    if reason == "stopped":
      self._testing.forget()
      yield from self._drain(_STOP_TIMEOUT_S)
      yield from self._calls.give_up((WORKER, REANALYZE_WORKER))
      if self._collecting is not None:
        self._collecting.give_up()
    yield from self._drain()
    closing = [worker.close.remote() for worker in self._pool.workers.values()]
    while not self._states.has_final:
      self._states.ask(is_final=True)
      yield from self._drain()
    self._testing.is_final_due = reason != "stopped"
    if self._testing.is_final_due:
      self._updates.publish_now()
    while (self._calls or self._testing.is_final_due) and not self._should_stop():
      self._testing.ask_final(self._updates.parameters, self._pacer.env_steps)
      yield from self._react(timeout_s=0.5)
      yield from self._observing.poll()
    if not self._should_stop():
      yield from self._observing.finish()
    # What an environment holds outside its process ends well; one that does not end holds nobody up.
    if closing:
      self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_TIMEOUT_S)
    if reason != "stopped":
      reason = self._testing.reason_at_end(reason)
    yield Finished(**self._counters(), reason=reason, sample_reuse=self._pacer.sample_reuse)

  def _drain(self, timeout_s: float = math.inf, until_stopped: bool = False) -> Iterator[Event]:
    end_s = time.monotonic() + timeout_s
    while self._calls and (left_s := end_s - time.monotonic()) > 0:
      if until_stopped and self._should_stop():
        return
      yield from self._react(timeout_s=min(0.5 if until_stopped else 10.0, left_s))

  def _salvage(self) -> Iterator[Event]:
    """After a failure that the run cannot go on with: a last state, if those who hold it still answer."""
    try:
      training, replay = self._ray.get(list(self._states.parts()), timeout=_SALVAGE_TIMEOUT_S)
    except self._ray.exceptions.RayError:
      return
    yield from self._told_by_replay()
    yield from self._tell_collected()
    yield self._states.ready(self._progress(), True, training, replay)

  def _told_by_replay(self) -> Iterator[Event]:
    """What replay did before its last state, of the calls that came; others may bring the failure again."""
    failed = True
    while failed:
      failed = False
      try:
        for call, value, error in self._calls.come(timeout_s=0.0):
          if error is None and call.actor == REPLAY:
            yield from call.react(value)
      except self._ray.exceptions.RayError:
        failed = True

  def _progress(self) -> State:
    progress: State = {"wall_s": self._wall_s()}
    return progress | prefixed("pacer", self._pacer.get_state()) | self._testing.get_state()

  # --- small things -------------------------------------------------------------------------------

  def _counters(self) -> dict[str, Any]:
    return {"env_steps": self._pacer.env_steps, "learner_steps": self._updates.versions.now}

  def _wall_s(self) -> float:
    return time.monotonic() - self._start
