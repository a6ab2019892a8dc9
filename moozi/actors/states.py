"""Gathers the run's state from the parameter server, replay, the session and the ledger."""

from collections.abc import Iterator
from typing import Any

from moozi.actors.context import Context
from moozi.core.actor_report import REPLAY, SERVER, ActorId
from moozi.core.errors import ProcessLostError
from moozi.core.flat_state import State, prefixed
from moozi.replay.snapshot import num_added
from moozi.run.events import Event, StateReady
from moozi.run.state import RunState


def request(context: Context, is_final: bool) -> None:
  """Requests a state of the run that includes all work requested so far."""
  number, progress = context.ledger.begin_state(), _progress(context)
  # The training state and replay's snapshot arrive at different times; the later one completes the state.
  arrived: dict[str, Any] = {}

  def on_part(**parts: Any) -> list[Event]:
    arrived.update(parts)
    is_complete = len(arrived) == 3 and number == context.ledger.state_request
    return [_ready(context, progress, is_final, **arrived)] if is_complete else []

  def on_training(training: Any) -> list[Event]:
    return on_part(training=training)

  def on_replay(replay: Any) -> list[Event]:
    # Segments that replay refuses after the snapshot change the ledger's number, but not the snapshot.
    return on_part(replay=replay, steps_ahead=context.ledger.replay_steps_ahead)

  def on_failure(_: Any) -> list[Event]:
    if number == context.ledger.state_request:
      context.ledger.drop_state()
    return []

  training, replay = _parts(context)
  context.calls.expect(training, ActorId(SERVER), on_training, on_failure)
  context.calls.expect(replay, ActorId(REPLAY), on_replay, on_failure)


def salvage(context: Context, timeout_s: float) -> Iterator[Event]:
  """Yields a last state after a failure, if Ray, the parameter server and replay still answer.

  Before the state, it yields the events of the segments that the snapshot of replay includes.
  """
  try:
    training, replay = context.ray.get(list(_parts(context)), timeout=timeout_s)
  except (context.ray.exceptions.RayError, ProcessLostError):
    return
  yield from _replay_results(context)
  steps_ahead = context.ledger.replay_steps_ahead
  yield _ready(context, _progress(context), True, training, replay, steps_ahead)


def _parts(context: Context) -> tuple[Any, Any]:
  """Requests the training state and replay's snapshot, and returns their references."""
  saved_blocks = context.session.inputs.saved_blocks()
  return context.pool.server.get_state.remote(), context.pool.replay.snapshot.remote(saved_blocks)


def _progress(context: Context) -> State:
  progress = context.session.progress(is_evaluation_pending=context.ledger.evaluation is not None)
  if context.ledger.past is not None:
    progress |= prefixed("past_selves", context.ledger.past.get_state())
  return progress | prefixed("pacer", context.ledger.pacer.get_state())


def _ready(
  context: Context, progress: State, is_final: bool, training: Any, replay: Any, steps_ahead: int
) -> Event:
  """Returns the event of a complete state.

  Its counters match the training state and replay's snapshot; they exclude results that completed during the
  transfer. `steps_ahead` is the ledger's `replay_steps_ahead` at the snapshot.
  """
  ledger = context.ledger
  ledger.is_state_pending, ledger.has_final_state = False, is_final
  learner_steps, env_steps = int(training.learner_step), num_added(replay) - steps_ahead
  if not context.config.num_acting_workers:
    env_steps = int(progress["pacer/env_steps"])
  progress |= {"pacer/env_steps": env_steps, "pacer/samples_done": ledger.samples_at(learner_steps)}
  state = RunState(training=training, progress=progress, replay=replay)
  return StateReady(env_steps=env_steps, learner_steps=learner_steps, state=state, is_final=is_final)


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
