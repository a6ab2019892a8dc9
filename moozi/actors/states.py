"""Gathers the run's state from the parameter server, replay, the session and the ledger."""

from collections.abc import Iterator
from typing import Any

from moozi.actors.context import Context, RunContext
from moozi.actors.ledger import Ledger
from moozi.core.actor_report import REPLAY, SERVER, ActorId
from moozi.core.errors import ProcessLostError
from moozi.core.flat_state import State, prefixed
from moozi.replay.snapshot import num_added
from moozi.run.events import Event, StateReady
from moozi.run.state import RunState


def request(context: RunContext, is_final: bool) -> None:
  """Requests a state of the run that includes all work requested so far."""
  number, progress = context.ledger.begin_state(), _progress(context)
  # The training state and replay's snapshot arrive at different times; the later one completes the state.
  arrived: dict[str, Any] = {}
  num_parts = 3 if isinstance(context, Context) else 1

  def on_part(**parts: Any) -> list[Event]:
    arrived.update(parts)
    is_complete = len(arrived) == num_parts and number == context.ledger.state_request
    return [_ready(context, progress, is_final, **arrived)] if is_complete else []

  def on_training(training: Any) -> list[Event]:
    return on_part(training=training)

  def on_failure(_: Any) -> list[Event]:
    if number == context.ledger.state_request:
      context.ledger.drop_state()
    return []

  context.calls.expect(context.pool.server.get_state.remote(), ActorId(SERVER), on_training, on_failure)
  if isinstance(context, Context):
    ledger = context.ledger

    def on_replay(replay: Any) -> list[Event]:
      # Segments that replay refuses after the snapshot change the ledger's number, but not the snapshot.
      return on_part(replay=replay, steps_ahead=ledger.replay_steps_ahead)

    context.calls.expect(_snapshot(context), ActorId(REPLAY), on_replay, on_failure)


def salvage(context: RunContext, timeout_s: float) -> Iterator[Event]:
  """Yields a last state after a failure, if Ray, the parameter server and replay still answer.

  Before the state, it yields the events of the segments that the snapshot of replay includes.
  """
  references = [context.pool.server.get_state.remote()]
  if isinstance(context, Context):
    references.append(_snapshot(context))
  try:
    training, *snapshot = context.ray.get(references, timeout=timeout_s)
  except (context.ray.exceptions.RayError, ProcessLostError):
    return
  if isinstance(context, Context):
    yield from _replay_results(context)
    snapshot.append(context.ledger.replay_steps_ahead)
  yield _ready(context, _progress(context), True, training, *snapshot)


def _snapshot(context: Context) -> Any:
  """Requests replay's snapshot, and returns the reference."""
  return context.pool.replay.snapshot.remote(context.session.inputs.saved_blocks())


def _progress(context: RunContext) -> State:
  progress = context.session.progress(is_evaluation_pending=context.ledger.evaluation is not None)
  if context.ledger.past is not None:
    progress |= prefixed("past_selves", context.ledger.past.get_state())
  return progress | context.ledger.get_state()


def _ready(
  context: RunContext,
  progress: State,
  is_final: bool,
  training: Any,
  replay: Any = None,
  steps_ahead: int = 0,
) -> Event:
  """Returns the event of a complete state.

  Its counters match the training state and replay's snapshot; they exclude results that completed during the
  transfer. `steps_ahead` is the ledger's `replay_steps_ahead` at the snapshot.
  """
  ledger = context.ledger
  ledger.is_state_pending, ledger.has_final_state = False, is_final
  learner_steps = int(training.learner_step)
  if isinstance(ledger, Ledger):
    env_steps = num_added(replay) - steps_ahead
    if not context.config.num_acting_workers:
      env_steps = int(progress["pacer/env_steps"])
    progress |= {"pacer/env_steps": env_steps, "pacer/samples_done": ledger.samples_at(learner_steps)}
  state = RunState(training=training, progress=progress, replay=replay)
  return StateReady(env_steps=state.env_steps, learner_steps=learner_steps, state=state, is_final=is_final)


def _replay_results(context: Context) -> Iterator[Event]:
  """Yields the events of replay's completed calls; skips other actors, which may raise the failure again."""
  failed = True
  while failed:
    failed = False
    try:
      for call, value, error in context.calls.completed(timeout_s=0.0):
        if error is None and call.actor == ActorId(REPLAY):
          yield from call.on_result(value)
    except context.ray.exceptions.RayError:
      failed = True
