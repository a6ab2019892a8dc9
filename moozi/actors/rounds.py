"""The rounds of an on-policy run: segments of all training workers, then the updates from them.

`run.on_policy` has the functions that a worker and the parameter server run in a round, and makes the same
rounds in one process. The driver requests checkpoints before it publishes the parameters of a round, and
evaluations before it requests the first segment.
"""

import functools
from collections.abc import Iterator
from typing import Any

from moozi.actors import evaluations, segments, states, updates
from moozi.actors.context import RoundContext
from moozi.actors.round_ledger import Phase
from moozi.core.actor_report import SERVER, WORKER, ActorId
from moozi.core.errors import NotFiniteError
from moozi.run.events import Acted, Collected, Event, Faulted, Updated
from moozi.run.on_policy import Part, refusal


def request(context: RoundContext) -> None:
  """Begins a round, or requests the segments that the present round lacks."""
  ledger, pool = context.ledger, context.pool
  if ledger.phase is Phase.IDLE:
    if not ledger.is_state_pending and context.session.is_checkpoint_due():
      states.request(context, is_final=False)
    _publish(context)
  elif ledger.phase is Phase.ACTING:
    if not ledger.num_collected and not ledger.in_flight:
      evaluations.request_due(context)
    for index in ledger.missing:
      if index in pool.workers:
        _request_segment(context, index)


def drop(context: RoundContext) -> Iterator[Event]:
  """Drops the segments of an incomplete round at the end of a run; their steps do not count."""
  num_segments = context.ledger.drop_round()
  if num_segments:
    counts = {"dropped_steps": num_segments * context.ledger.segment_steps}
    message = "the round in progress is dropped: it lacks segments of some workers"
    yield Faulted(**context.counters(), counts=counts, message=message)


def _publish(context: RoundContext) -> None:
  """Requests the parameters of the next round."""
  ledger = context.ledger
  ledger.phase = Phase.PUBLISHING
  reference, epoch = updates.newest(context), ledger.parameter_epoch

  def on_result(parameters: Any) -> list[Event]:
    ledger.phase = Phase.IDLE
    if epoch == ledger.parameter_epoch:
      ledger.parameters = reference
      if ledger.past is not None:
        ledger.past.offer(*parameters)
      ledger.begin_acting()
    return []

  def on_failure(_: Any) -> list[Event]:
    ledger.phase = Phase.IDLE
    return []

  # Not a result of the server's work, because a restarted server answers it before it has made an update.
  context.calls.expect(reference, None, on_result, on_failure)


def _request_segment(context: RoundContext, index: int) -> None:
  ledger, worker = context.ledger, context.pool.workers[index]
  ledger.begin_segment(index)
  arguments = (ledger.parameters, ledger.env_steps, *segments.past_arguments(context, index))
  rollout, part = worker.run.options(num_returns=2).remote(*arguments)
  on_result = functools.partial(_on_acted, context, index, rollout)
  context.calls.expect(part, ActorId(WORKER, index), on_result, functools.partial(_on_lost, context, index))


def _on_lost(context: RoundContext, index: int, error: Any) -> list[Event]:
  """Reports a lost segment. `request` requests it again, from the worker or from its replacement."""
  context.ledger.lose_segment(index)
  context.ledger.cold_workers.discard(index)
  if segments.is_alive(context, error) and index in context.pool.workers:
    # The worker may have acted. After a segment that is not learned from, the next begins with first steps.
    _reset(context, index)
  return [segments.dropped(context, index, "the segment in flight was lost")]


def _reset(context: RoundContext, index: int) -> None:
  context.calls.expect(context.pool.workers[index].reset.remote(), ActorId(WORKER, index))


def _on_acted(context: RoundContext, index: int, rollout: Any, part: Part) -> Iterator[Event]:
  context.ledger.cold_workers.discard(index)
  if context.ledger.add_segment(index, rollout, part):
    yield from _complete(context)


def _complete(context: RoundContext) -> Iterator[Event]:
  """Counts the steps of a complete round, and requests its updates."""
  ledger = context.ledger
  began_at = ledger.env_steps
  rollouts, parts = ledger.take_round()
  for index, part in enumerate(parts):
    ledger.count_steps(part.acted.num_steps)
    metrics = part.acted.metrics
    if ledger.past is not None and part.acted.past is not None:
      metrics = metrics | ledger.past.record(index, part.acted.past, ledger.learner_steps)
    yield Acted(
      **context.counters(),
      metrics=metrics,
      episode_returns=part.acted.episode_returns,
      episode_lengths=part.acted.episode_lengths,
      staleness=ledger.learner_steps - part.acted.version,
    )
  fault = refusal(parts, ledger.refusals)
  if fault is not None:
    counts, message = fault
    yield Faulted(**context.counters(), counts=counts, message=message)
    for index, part in enumerate(parts):
      if part.refused is not None:
        ledger.refusals.add(index, part.refused)
    for index in context.pool.workers:
      _reset(context, index)
    return
  for index, part in enumerate(parts):
    if part.steps is not None:
      # A worker that has lost a segment was reset, so its next one begins with first steps.
      lane = segments.first_lane(context, index)
      yield Collected(**context.counters(), segment=part.steps, first_lane=lane, follows=True)
  if ledger.has_acted_with_lost_parameters:
    yield _without_update(context, "older parameters were restored after the round began")
    return
  ledger.phase = Phase.LEARNING
  context.calls.expect(
    context.pool.server.learn.remote(began_at, context.session.time_share(), *rollouts),
    ActorId(SERVER),
    functools.partial(_on_learned, context, ledger.parameter_epoch),
    functools.partial(_on_update_lost, context, ledger.parameter_epoch),
  )


def _without_update(context: RoundContext, reason: str) -> Event:
  """Returns the event of a complete round whose steps are not learned from."""
  counts = {"lost_steps": context.ledger.round_steps}
  return Faulted(**context.counters(), counts=counts, message=f"a round has no update: {reason}")


def _on_learned(context: RoundContext, epoch: int, learned: tuple[int, int, dict[str, float]]) -> list[Event]:
  ledger = context.ledger
  if epoch != ledger.parameter_epoch:
    return _on_update_lost(context, epoch, None)
  num_samples, learner_step, metrics = learned
  ledger.phase, ledger.learner_steps = Phase.IDLE, learner_step
  return [
    Updated(**context.counters(), metrics=metrics, num_samples=num_samples, sample_reuse=ledger.sample_reuse)
  ]


def _on_update_lost(context: RoundContext, epoch: int, error: Any) -> list[Event]:
  context.ledger.phase = Phase.IDLE
  if isinstance(error, NotFiniteError) and epoch == context.ledger.parameter_epoch:
    return updates.roll_back(context, error)
  return [_without_update(context, "its segments or the parameter server were lost")]
