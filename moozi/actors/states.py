"""Gathers the run's state from the parameter server, replay, the session and the ledger."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from moozi.actors.context import Context, RunContext
from moozi.actors.ledger import Ledger
from moozi.actors.roles import shard_actor
from moozi.core.actor_report import REPLAY, SERVER, ActorId
from moozi.core.errors import ProcessLostError
from moozi.core.flat_state import Snapshot, State, prefixed
from moozi.replay.shard_snapshots import joined, known_of
from moozi.replay.snapshot import num_added
from moozi.run.events import Event, StateReady
from moozi.run.gate import GATE
from moozi.run.state import RunState


def request(context: RunContext, is_final: bool) -> None:
  """Requests a state of the run.

  It includes the results of all calls that the parameter server and replay have received so far.
  """
  number, progress = context.ledger.begin_state(), _progress(context)
  # The training state and the snapshots of replay's shards arrive at different times; the last one completes
  # the state.
  training: list[Any] = []
  snapshots: dict[int, tuple[Snapshot, int]] = {}
  num_shards = len(context.pool.shards)

  def on_part() -> list[Event]:
    is_complete = bool(training) and len(snapshots) == num_shards
    if not is_complete or number != context.ledger.state_request:
      return []
    return [_ready(context, progress, is_final, training[0], [snapshots[i] for i in sorted(snapshots)])]

  def on_training(arrived: Any) -> list[Event]:
    training.append(arrived)
    return on_part()

  def on_failure(_: Any) -> list[Event]:
    if number == context.ledger.state_request:
      context.ledger.drop_state()
    return []

  context.calls.expect(context.pool.server.get_state.remote(), ActorId(SERVER), on_training, on_failure)
  if isinstance(context, Context):
    shards = context.ledger.shards

    def on_snapshot(shard: int, snapshot: Snapshot) -> list[Event]:
      # Segments that a shard refuses after the snapshot change the ledger's number, but not the snapshot.
      snapshots[shard] = snapshot, shards.steps_ahead(shard)
      return on_part()

    for shard, reference in enumerate(_snapshots(context)):
      actor = shard_actor(context.config, shard)
      context.calls.expect(reference, actor, functools.partial(on_snapshot, shard), on_failure)


def salvage(context: RunContext, timeout_s: float) -> Iterator[Event]:
  """Yields a last state after a failure, if Ray, the parameter server and replay still answer.

  Before the state, it yields the events of replay's completed calls.
  """
  references = [context.pool.server.get_state.remote()]
  if isinstance(context, Context):
    references += _snapshots(context)
  try:
    training, *snapshots = context.ray.get(references, timeout=timeout_s)
  except (context.ray.exceptions.RayError, ProcessLostError):
    return
  found: list[tuple[Snapshot, int]] = []
  if isinstance(context, Context):
    yield from _replay_results(context)
    found = [(each, context.ledger.shards.steps_ahead(shard)) for shard, each in enumerate(snapshots)]
  yield _ready(context, _progress(context), True, training, found)


def _snapshots(context: Context) -> list[Any]:
  """Requests the snapshots of replay's shards, and returns the references."""
  known, shards = context.session.inputs.saved_blocks(), context.pool.shards
  return [shards[i].snapshot.remote(known_of(known, i, len(shards))) for i in sorted(shards)]


def _progress(context: RunContext) -> State:
  progress = context.session.progress(is_evaluation_pending=context.ledger.evaluation is not None)
  if context.ledger.past is not None:
    progress |= prefixed("past_selves", context.ledger.past.get_state())
  if context.ledger.gate is not None:
    progress |= prefixed(GATE, context.ledger.gate.get_state())
  return progress | context.ledger.get_state()


def _ready(
  context: RunContext,
  progress: State,
  is_final: bool,
  training: Any,
  snapshots: Sequence[tuple[Snapshot, int]],
) -> Event:
  """Returns the event of a complete state.

  Its numbers of environment steps, updates and samples are those of the training state and of replay's
  snapshot. Work that was completed during the transfer is not counted.

  Args:
    snapshots: the snapshot of each shard of replay, with the ledger's `steps_ahead` of the shard when it
      arrived; empty in on-policy runs.
  """
  ledger = context.ledger
  ledger.is_state_pending, ledger.has_final_state = False, is_final
  learner_steps = int(training.learner_step)
  replay = None
  if isinstance(ledger, Ledger):
    replay = joined([snapshot for snapshot, _ in snapshots])
    env_steps = num_added(replay) - sum(steps_ahead for _, steps_ahead in snapshots)
    if not context.config.num_acting_workers:
      env_steps = int(progress["pacer/env_steps"])
    progress |= {"pacer/env_steps": env_steps, "pacer/samples_done": ledger.samples_at(learner_steps)}
  state = RunState(training=training, progress=progress, replay=replay)
  return StateReady(env_steps=state.env_steps, learner_steps=learner_steps, state=state, is_final=is_final)


def _replay_results(context: Context) -> Iterator[Event]:
  """Yields the events of replay's completed calls; skips calls of other actors, which may raise again."""
  failed = True
  while failed:
    failed = False
    try:
      for call, value, error in context.calls.completed(timeout_s=0.0):
        if error is None and call.actor is not None and call.actor.role == REPLAY:
          yield from call.on_result(value)
    except context.ray.exceptions.RayError:
      failed = True
