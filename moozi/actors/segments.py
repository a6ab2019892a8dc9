"""Acting: requests segments from the training workers and passes them to replay and to the recorder."""

import functools
import time
from collections.abc import Iterator
from typing import Any

from moozi.actors.context import Context
from moozi.actors.ledger import KeptSegment
from moozi.core.actor_report import REPLAY, WORKER
from moozi.replay.validation import AddResult
from moozi.run.events import Acted, Collected, Event, Faulted


def warm_up(context: Context, index: int) -> None:
  """Requests that a training worker compile acting. Segments are requested from it after that."""
  context.ledger.cold_workers.add(index)

  def on_result(_: Any) -> list[Event]:
    context.session.phase("compiled acting")
    return on_failure(None)

  def on_failure(_: Any) -> list[Event]:
    # A restarted worker compiles with its first segment.
    context.ledger.cold_workers.discard(index)
    return []

  context.session.phase("compiling acting")
  context.calls.expect(
    context.pool.workers[index].warm_up.remote(), f"{WORKER}_{index}", on_result, on_failure
  )


def request(context: Context) -> None:
  """Requests segments from every training worker up to the limits of pacing and `ray.segments_in_flight`."""
  ledger, workers = context.ledger, context.pool.workers
  if not context.config.num_acting_workers:
    ledger.pacer.count_offline_steps(ledger.can_sample)
  max_in_flight = context.config.ray.segments_in_flight
  # Workers with a short queue come first, so that none is idle while another has two segments to make.
  warm = [index for index in workers if index not in ledger.cold_workers]
  for index in sorted(warm, key=ledger.segments_in_flight.__getitem__):
    while ledger.segments_in_flight[index] < max_in_flight and ledger.pacer.may_act(ledger.can_sample):
      _request(context, index)


def _request(context: Context, index: int) -> None:
  ledger = context.ledger
  number = ledger.begin_segment(index)
  worker = context.pool.workers[index]
  arguments = (ledger.parameters, ledger.env_steps, *_past(context, index))
  segment, acted = worker.run.options(num_returns=2).remote(*arguments)

  def on_failure(error: Any) -> list[Event]:
    ledger.segments_in_flight[index] -= 1
    return _drop(context, index, "the segment in flight was lost", error)

  on_result = functools.partial(_on_acted, context, index, segment, number, ledger.replay_epoch)
  context.calls.expect(acted, f"{WORKER}_{index}", on_result, on_failure)


def _past(context: Context, index: int) -> tuple[Any, ...]:
  """Returns a reference to the parameters of a worker's past self; empty without past selves."""
  ledger = context.ledger
  if ledger.past is None:
    return ()
  if not ledger.past.pool:
    ledger.past.offer(*context.ray.get(ledger.parameters))
  past = ledger.past.opponent(index)
  if ledger.past_parameters.get(index, (None,))[0] != past.version:
    # The driver puts the object, because objects that a worker puts are lost when the worker fails.
    reference = context.ray.put((past.variables, past.version))
    ledger.past_parameters[index] = past.version, reference
  return (ledger.past_parameters[index][1],)


def _on_acted(context: Context, index: int, segment: Any, number: int, epoch: int, acted: Any) -> list[Event]:
  ledger, replay = context.ledger, context.pool.replay
  num_in_flight = ledger.segments_in_flight.total()
  ledger.segments_in_flight[index] -= 1
  if epoch != ledger.replay_epoch:
    return _drop(context, index, "dropped a segment: replay has lost the start of its episodes")
  # A segment is sent to replay only when it is complete. Replay executes its calls in order, so a call that
  # waits for its argument would delay the sampling calls behind it.
  context.calls.expect(
    replay.add.remote(segment, _first_lane(context, index), number),
    REPLAY,
    functools.partial(_on_stored, context, index, segment, replay),
    lambda error: _drop(context, index, "a segment was lost", error),
  )
  metrics = acted.metrics | {"system/segments_in_flight": num_in_flight}
  if ledger.past is not None:
    metrics |= ledger.past.record(index, acted.past, ledger.learner_steps)
  return [
    Acted(
      **context.counters(),
      metrics=metrics,
      episode_returns=acted.episode_returns,
      episode_lengths=acted.episode_lengths,
      staleness=ledger.learner_steps - acted.version,
    )
  ]


def _on_stored(
  context: Context, index: int, segment: Any, replay: Any, value: tuple[bool, dict[str, float], AddResult]
) -> list[Event]:
  ledger, pool = context.ledger, context.pool
  can_sample, ledger.replay_stats, added = value
  if replay is pool.replay:
    # The result of a replay that has failed since does not say whether the restarted replay can sample.
    ledger.can_sample = can_sample
  if context.config.trajectories.save:
    _keep(context, index, segment, is_whole=not added.num_lost)
  ledger.store_segment(added.num_lost)
  if not added.num_lost:
    return []
  if added.refused is not None and index in pool.workers:
    # Replay refuses these lanes until an episode starts. Without a reset, an agent's episode may never end.
    context.calls.expect(pool.workers[index].reset.remote(), f"{WORKER}_{index}")
  return [Faulted(**context.counters(), counts=added.faults, message=added.describe(index))]


def _drop(context: Context, index: int, message: str, error: Any = None) -> list[Event]:
  """Reports a segment that replay does not receive. Its steps do not count, so they are requested again.

  `error` is the error of the lost call; None if the segment was dropped on purpose.
  """
  num_steps = context.ledger.segment_steps
  context.ledger.pacer.undo_act(num_steps)
  context.ledger.gaps.add(index)
  is_alive = error is not None and not isinstance(error, context.ray.exceptions.ActorDiedError)
  if is_alive and index in context.pool.workers:
    # Replay misses this segment's number, and drops the lanes' steps until an episode starts.
    context.calls.expect(context.pool.workers[index].reset.remote(), f"{WORKER}_{index}")
  message = f"{WORKER}_{index}: {message}"
  return [Faulted(**context.counters(), counts={"dropped_steps": num_steps}, message=message)]


def _first_lane(context: Context, index: int) -> int:
  return index * context.config.workers.num_envs


# --- kept segments: in the order of each worker, with gaps marked -------------------------------------------


def _keep(context: Context, index: int, segment: Any, is_whole: bool) -> None:
  """Queues a worker's next segment for the recorder, or marks a gap if replay did not store all of it.

  On one machine a stored segment is available immediately; from another machine it must be transferred.
  """
  ledger = context.ledger
  if not is_whole:
    ledger.gaps.add(index)
    return
  ledger.kept_segments[index].append(KeptSegment(segment, follows=index not in ledger.gaps))
  ledger.gaps.discard(index)
  if len(ledger.kept_segments[index]) == 1:
    _wait_for_kept(context, index)


def deliver_kept(context: Context, timeout_s: float) -> Iterator[Event]:
  """Yields the kept segments that arrive within the timeout; a later call yields the others."""
  end_s = time.monotonic() + timeout_s
  while pending := [queue[0].reference for queue in context.ledger.kept_segments.values() if queue]:
    ready = context.calls.ready(pending, max(0.0, end_s - time.monotonic()))
    for reference in ready:
      yield from context.calls.complete(reference)
    if not ready:
      return


def discard_kept(context: Context) -> None:
  """Stops waiting for kept segments."""
  for index, queue in context.ledger.kept_segments.items():
    if queue:
      context.calls.discard(queue[0].reference)
      queue.clear()
      context.ledger.gaps.add(index)


def _wait_for_kept(context: Context, index: int) -> None:
  """Registers the transfer of a worker's oldest kept segment, if any; one at a time, to keep the order."""
  if queue := context.ledger.kept_segments[index]:
    context.calls.expect(
      queue[0].reference,
      # This is not the worker's name: cancelling the worker's calls must not cancel the transfer.
      f"a segment of {WORKER}_{index}",
      functools.partial(_on_kept, context, index),
      lambda _: _on_kept_lost(context, index),
    )


def _on_kept(context: Context, index: int, segment: Any) -> list[Event]:
  follows = context.ledger.kept_segments[index].popleft().follows
  _wait_for_kept(context, index)
  first_lane = _first_lane(context, index)
  return [Collected(**context.counters(), segment=segment, first_lane=first_lane, follows=follows)]


def _on_kept_lost(context: Context, index: int) -> list[Event]:
  queue = context.ledger.kept_segments[index]
  queue.popleft()
  if queue:
    queue[0] = queue[0]._replace(follows=False)
  else:
    context.ledger.gaps.add(index)
  _wait_for_kept(context, index)
  return []
