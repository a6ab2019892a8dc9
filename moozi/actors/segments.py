"""Acting: requests segments from the training workers and passes them to replay and to the recorder."""

import functools
from typing import Any

from moozi.actors import cluster, inference, shard_calls
from moozi.actors.context import Context, RunContext
from moozi.actors.roles import shard_actor
from moozi.actors.shard_ledger import ShardReport
from moozi.core.actor_report import WORKER, ActorId
from moozi.replay.frame_rows import unpacked
from moozi.replay.validation import AddResult
from moozi.run.events import Acted, Collected, Event, Faulted

# Maximum time to wait for a segment to keep, which may be on another machine.
_KEEP_TIMEOUT_S = 5.0


def warm_up(context: Context, index: int) -> None:
  """Requests that a training worker compile acting. Segments are requested from it after that."""
  context.ledger.cold_workers.add(index)

  def on_result(_: Any) -> list[Event]:
    context.session.phase("compiled acting")
    return on_failure(None)

  def on_failure(_: Any) -> list[Event]:
    # A restarted worker is warmed up when Ray has started it.
    context.ledger.cold_workers.discard(index)
    return []

  context.session.phase("compiling acting")
  context.calls.expect(
    context.pool.workers[index].warm_up.remote(), ActorId(WORKER, index), on_result, on_failure
  )


def request(context: Context) -> None:
  """Requests segments up to the limits of pacing and `ray.segments_in_flight`.

  Workers that compile acting, or whose node leaves, get no request.
  """
  ledger, workers = context.ledger, context.pool.workers
  if not context.config.num_acting_workers:
    ledger.pacer.count_offline_steps(ledger.shards.can_sample)
  max_in_flight = context.config.ray.segments_in_flight
  # Workers with a short queue come first, so that none is idle while another has two segments to make. Of
  # these, the one whose last request is the oldest: if learning limits the run, all workers still take turns.
  warm = [i for i in workers if i not in ledger.cold_workers and i not in context.pool.leaving]
  for index in sorted(warm, key=lambda i: (ledger.segments_in_flight[i], ledger.last_requests[i])):
    while ledger.segments_in_flight[index] < max_in_flight and ledger.pacer.may_act(ledger.shards.can_sample):
      _request(context, index)


def _request(context: Context, index: int) -> None:
  ledger = context.ledger
  number = ledger.begin_segment(index)
  worker = context.pool.workers[index]
  # Inference servers have the parameters.
  parameters = None if context.config.num_inference_servers else ledger.parameters
  arguments = (parameters, ledger.env_steps, *past_arguments(context, index))
  segment, acted = worker.run.options(num_returns=2).remote(*arguments)

  def on_failure(error: Any) -> list[Event]:
    ledger.segments_in_flight[index] -= 1
    return _drop(context, index, "the segment in flight was lost", error)

  epoch = ledger.shards.epochs[ledger.shards.of(index)]
  on_result = functools.partial(_on_acted, context, index, segment, number, epoch)
  context.calls.expect(acted, ActorId(WORKER, index), on_result, on_failure)


def past_arguments(context: RunContext, index: int) -> tuple[Any, ...]:
  """Returns a tuple with a reference to the parameters of a worker's past self; empty without past selves."""
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
  ledger, shard = context.ledger, context.ledger.shards.of(index)
  num_in_flight = ledger.segments_in_flight.total()
  ledger.segments_in_flight[index] -= 1
  if (server := inference.server_of(context, index)) is not None:
    context.pool.reset_failures(server)
  if epoch != ledger.shards.epochs[shard]:
    return _drop(context, index, "dropped a segment: replay has lost the start of its episodes")
  # A segment is sent to replay only when it is complete. Replay executes its calls in order, so a call that
  # waits for its argument would delay the sampling calls behind it.
  replay = context.pool.shards[shard]
  context.calls.expect(
    replay.add.remote(segment, first_lane(context, index), number),
    shard_actor(context.config, shard),
    functools.partial(_on_stored, context, index, number, segment, replay),
    lambda error: _drop(context, index, "a segment was lost", error),
  )
  metrics = acted.metrics | {
    "system/segments_in_flight": num_in_flight,
    "system/training_workers": len(context.pool.workers),
  }
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
  context: Context,
  index: int,
  number: int,
  segment: Any,
  replay: Any,
  value: tuple[ShardReport, dict[str, float], AddResult],
) -> list[Event]:
  ledger, pool, shard = context.ledger, context.pool, context.ledger.shards.of(index)
  report, ledger.shards.stats[shard], added = value
  shard_calls.hear(context, shard, replay, report)
  ledger.store_segment(added.num_lost, index)
  if not added.num_lost:
    return _keep(context, index, number, segment) if context.config.trajectories.save else []
  if added.refused is not None and index in pool.workers:
    # Replay refuses these lanes until an episode starts. Without a reset, an agent's episode may never end.
    context.calls.expect(pool.workers[index].reset.remote(), ActorId(WORKER, index))
  return [Faulted(**context.counters(), counts=added.faults, message=added.describe(index))]


def _drop(context: Context, index: int, message: str, error: Any = None) -> list[Event]:
  """Reports a segment that replay does not receive. Its steps do not count, so they are requested again.

  `error` is the error of the lost call; None if the call was cancelled or the segment dropped on purpose.
  """
  context.ledger.pacer.undo_act(context.ledger.segment_steps)
  if is_alive(context, error) and index in context.pool.workers:
    # Replay misses this segment's number, and drops the lanes' steps until an episode starts.
    context.calls.expect(context.pool.workers[index].reset.remote(), ActorId(WORKER, index))
  return [dropped(context, index, message)]


def dropped(context: RunContext, index: int, message: str) -> Faulted:
  """Returns the event of a segment whose steps do not count."""
  message = f"{ActorId(WORKER, index)}: {message}"
  counts = {"dropped_steps": context.ledger.segment_steps}
  return Faulted(**context.counters(), counts=counts, message=message)


def is_alive(context: RunContext, error: Any) -> bool:
  """Returns whether an actor works although a call was lost; false if `error` is None."""
  return error is not None and not isinstance(error, context.ray.exceptions.ActorDiedError)


def first_lane(context: RunContext, index: int) -> int:
  """Returns the number of the first of a worker's environments."""
  return index * context.config.worker_envs


def _keep(context: Context, index: int, number: int, segment: Any) -> list[Event]:
  """Returns the event of a segment to keep; none if the segment is lost or does not arrive in time.

  The driver waits: a stored segment is available immediately on one machine, and the events of a state's
  segments must come before that of the state. After a missing segment, the next event has `follows=False`.
  """
  ray, kept = context.ray, context.ledger.kept
  try:
    steps = ray.get(segment, timeout=_KEEP_TIMEOUT_S)
  except (*cluster.lost_errors(ray), ray.exceptions.GetTimeoutError):
    return []
  follows, kept[index] = kept[index] == number - 1, number
  lane = first_lane(context, index)
  steps = unpacked(steps, context.session.inputs.spec)
  return [Collected(**context.counters(), segment=steps, first_lane=lane, follows=follows)]
