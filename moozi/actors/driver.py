"""The driver runs the thesis's Algorithm 3 without its synchronization barrier, or on-policy rounds.

Every call of an actor returns a future. The driver keeps a bounded number of calls in flight at each actor,
reacts to the results as they complete, and requests evaluations and checkpoints when they are due. Functions
that take the context make the calls and react to results: `segments` for acting, `updates` for learning,
`reanalyze_calls`, `evaluations`, and `states` for checkpoints. In an on-policy run, `rounds` has the
functions for acting and learning. `failures` restarts actors, `heartbeats` ends those that do not answer,
`elastic` starts and drops training workers as nodes join and leave, and `observing` requests reports.
`run.local` and `run.on_policy` run the same algorithms in one process.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from moozi.actors import (
  cluster,
  elastic,
  evaluations,
  failures,
  inference,
  reanalyze_calls,
  resources,
  rounds,
  segments,
  states,
  updates,
)
from moozi.actors.calls import Calls
from moozi.actors.context import Context, RoundContext, RunContext
from moozi.actors.ledger import Ledger
from moozi.actors.observing import Observing
from moozi.actors.pool import ActorPool
from moozi.actors.round_ledger import RoundLedger
from moozi.core.actor_report import REANALYZE_WORKER, WORKER
from moozi.core.errors import RunError
from moozi.run.events import Event, Finished, Started
from moozi.run.on_policy import OnPolicyParts
from moozi.run.session import RunInputs, Session

_SALVAGE_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 10.0
# Maximum time to wait for work in flight after a stop.
_STOP_TIMEOUT_S = 5.0
# Maximum time to wait for a result at the end. Heartbeats count at most four seconds between two checks.
_DRAIN_WAIT_S = 2.0


@dataclasses.dataclass(frozen=True)
class Work:
  """The functions by which the driver requests the work of a run with replay, or of an on-policy run.

  Each function takes the run's context.

  Attributes:
    begin: requests the first work; returns the message of the event `Started`, in an on-policy run without
      the algorithm's part.
    start_others: called once, after `ActorPool.start_others`.
    follow_workers: makes the function that starts and drops training workers as nodes join and leave; the
      function yields events. In an on-policy run, it does nothing.
    request: requests work up to the limits of pacing and of work in flight.
    request_due: requests a checkpoint and an evaluation if they are due; in an on-policy run, `request` does.
    drop: drops the work that is not complete at the end of the run, and yields the events.
  """

  begin: Callable[[Any], str]
  start_others: Callable[[Any], None]
  follow_workers: Callable[[Any], Callable[[], Iterator[Event]]]
  request: Callable[[Any], None]
  request_due: Callable[[Any], None]
  drop: Callable[[Any], Iterator[Event]]


def run(inputs: RunInputs, parts: OnPolicyParts | None = None) -> Generator[Event, None, None]:
  """Trains with Ray actors, and yields events as `run.local.run` or `run.on_policy.run` does.

  Args:
    parts: the algorithm of an on-policy run; None: MuZero or AlphaZero.

  Raises: UserError: as `resources.connected`. RunError: an actor fails more often in a row than
    `ray.max_restarts` allows or while the driver waits for it, a process of Ray ends, too many segments of a
    worker are refused in a row, the run cannot roll back after non-finite updates, or an on-policy run lacks
    the resources to restart an actor.
  """
  config, state = inputs.config, inputs.state
  ledger = Ledger(config, state) if parts is None else RoundLedger(config, state, parts)
  session = Session(inputs, ledger)
  session.phase("starting Ray")
  with resources.connected(inputs.config) as ray, _failures_as_run_errors(ray):
    if note := resources.idle_gpu_note(inputs.config, ray.cluster_resources()):
      session.phase(note)
    session.phase("starting the actors")
    pool, calls = ActorPool(ray, inputs, parts), Calls(ray)
    context: RunContext
    if isinstance(ledger, Ledger):
      context, work = Context(ray, pool, calls, ledger, session), _WITH_REPLAY
    else:
      context, work = RoundContext(ray, pool, calls, ledger, session), _IN_ROUNDS
    observing, follow_workers = Observing(context), work.follow_workers(context)
    message = work.begin(context)
    if parts is not None:
      message = f"{parts.message}, {message}"
    yield Started(**context.counters(), message=message)
    try:
      while (reason := _reason_to_end(context)) is None:
        if not context.ledger.cold_workers:
          _start_others(context, work)
        yield from follow_workers()
        work.request(context)
        yield from _react(context, timeout_s=1.0)
        yield from observing.poll()
        work.request_due(context)
      yield from _finish(context, work, observing, reason)
    except (ray.exceptions.RayError, RunError):
      yield from states.salvage(context, _SALVAGE_TIMEOUT_S)
      raise


@contextlib.contextmanager
def _failures_as_run_errors(ray: Any) -> Iterator[None]:
  """Turns the loss of an actor or an object in the block into a RunError of one line."""
  try:
    yield
  except cluster.lost_errors(ray) as error:
    raise RunError(f"an actor failed: {cluster.describe_failure(ray, error)}") from error


# --- work ---------------------------------------------------------------------------------------------------


def _begin_with_replay(context: Context) -> str:
  """Waits for the first parameters and for replay; returns the message of the event `Started`."""
  first = updates.publish_now(context)
  for index in context.pool.inference_servers:
    inference.watch(context, index)
  # The first worker compiles acting while the parameter server makes the first parameters. The server then
  # compiles the update.
  for index in context.pool.workers:
    segments.warm_up(context, index)
  updates.warm_up(context)
  _wait_for_first(context, first)
  shards = context.pool.shards
  message = _workers_text(context)
  reports = context.ray.get([replay.ready.remote() for replay in shards.values()])
  for shard, (report, text) in zip(shards, reports, strict=True):
    context.ledger.shards.hear(shard, report)
    message += text
  return message


def _wait_for_first(context: Context, first: Any) -> None:
  """Waits until the first parameters have arrived, or the run is stopped."""
  while not (context.should_stop() or context.ray.wait([first], timeout=0.5)[0]):
    if (shortage := context.pool.host_shortage()) is not None:
      context.session.phase(shortage)


def _workers_text(context: RunContext) -> str:
  num_workers = context.config.num_acting_workers
  noun = "worker" if num_workers == 1 else "workers"
  num_servers = context.config.num_inference_servers
  servers = f", {num_servers} inference server{'s' if num_servers > 1 else ''}" if num_servers else ""
  num_hosts = context.config.learner.num_hosts
  hosts = f", a learner on {num_hosts} hosts" if num_hosts > 1 else ""
  return f"{num_workers} training {noun}{servers}{hosts}{context.config.past_selves_text}"


def _start_others_with_replay(context: Context) -> None:
  elastic.note_shortage(context)
  reanalyze_calls.publish(context)


def _request(context: Context) -> None:
  """Requests updates, searches and segments up to the limits of pacing and of work in flight."""
  updates.request(context)
  reanalyze_calls.request(context)
  segments.request(context)


def _request_due(context: Context) -> None:
  """Requests a checkpoint and an evaluation if they are due."""
  if not context.ledger.is_state_pending and context.session.is_checkpoint_due():
    states.request(context, is_final=False)
  evaluations.request_due(context)


_WITH_REPLAY = Work(
  begin=_begin_with_replay,
  start_others=_start_others_with_replay,
  follow_workers=lambda context: elastic.ElasticWorkers(context).poll,
  request=_request,
  request_due=_request_due,
  drop=lambda context: iter(()),
)


def _begin_rounds(context: RoundContext) -> str:
  # The first worker compiles acting with its first segment.
  context.ledger.cold_workers.add(0)
  context.session.phase("compiling acting")
  return _workers_text(context)


# Checkpoints and evaluations are requested between rounds, by `rounds.request`.
_IN_ROUNDS = Work(
  begin=_begin_rounds,
  start_others=lambda context: None,
  follow_workers=lambda context: lambda: iter(()),
  request=rounds.request,
  request_due=lambda context: None,
  drop=rounds.drop,
)


# --- the loop -----------------------------------------------------------------------------------------------


def _start_others(context: RunContext, work: Work) -> None:
  """Starts the remaining actors, if they are not started.

  The loop calls this once no training worker compiles acting. The first worker then acts while the others
  start, and the others load the compiled functions from the cache.
  """
  if context.pool.testing_worker is None:
    context.pool.start_others()
    work.start_others(context)


def _react(context: RunContext, timeout_s: float) -> Iterator[Event]:
  """Waits for results, reacts to each result, and yields the events; restarts actors that failed or hang."""
  context.pool.end_hung()
  for call, value, error in context.calls.completed(timeout_s):
    if error is None:
      if call.actor is not None:
        context.pool.reset_failures(call.actor)
      yield from call.on_result(value)
    else:
      yield from call.on_failure(error)
      yield from failures.on_error(context, error)


def _reason_to_end(context: RunContext) -> str | None:
  return context.session.reason_to_end(context.ledger.is_complete(has_calls=bool(context.calls)))


# --- the end ------------------------------------------------------------------------------------------------


def _finish(context: RunContext, work: Work, observing: Observing, reason: str) -> Iterator[Event]:
  """Waits for the work in flight, takes the last state, evaluates, and takes the state again.

  A run that is stopped skips the evaluation and waits a few seconds for its workers.
  """
  if reason != "stopped":
    # A pending evaluation may take a long time.
    yield from _drain(context, until_stopped=True)
    reason = "stopped" if context.should_stop() else reason
  if reason == "stopped":
    yield from _cancel_work(context)
  yield from _drain(context)
  yield from work.drop(context)
  closing = [worker.close.remote() for worker in context.pool.workers.values()]
  while not context.ledger.has_final_state:
    states.request(context, is_final=True)
    yield from _drain(context)
  if reason != "stopped":
    # The last line of metrics is written with the final evaluation; it needs the reports of what was before.
    yield from observing.finish()
    yield from _evaluate_last(context, work, observing)
    reason = context.session.evaluations.reason_at_end(reason)
  if reason != "stopped":
    # A run that is resumed from this state keeps the final evaluation.
    states.request(context, is_final=False)
    yield from _drain(context)
  if not context.should_stop():
    yield from observing.finish()
  _wait_for_closed(context.ray, closing)
  yield Finished(**context.counters(), reason=reason, sample_reuse=context.ledger.sample_reuse)


def _drain(context: RunContext, timeout_s: float = math.inf, until_stopped: bool = False) -> Iterator[Event]:
  """Reacts to results until no call is in flight or the timeout ends.

  With `until_stopped` it also returns when the run is stopped.
  """
  end_s = time.monotonic() + timeout_s
  while context.calls and (left_s := end_s - time.monotonic()) > 0:
    if until_stopped and context.should_stop():
      return
    yield from _react(context, timeout_s=min(0.5 if until_stopped else _DRAIN_WAIT_S, left_s))


def _cancel_work(context: RunContext) -> Iterator[Event]:
  """Waits a few seconds for the work in flight, and cancels the calls of training and reanalyze workers.

  Drops the pending evaluation; a resumed run repeats it. Batches at the parameter server are not cancelled,
  so that the last state includes their updates.
  """
  context.calls.discard(context.ledger.evaluation)
  yield from _drain(context, _STOP_TIMEOUT_S)
  yield from context.calls.cancel(WORKER, REANALYZE_WORKER)


def _evaluate_last(context: RunContext, work: Work, observing: Observing) -> Iterator[Event]:
  """Evaluates the last parameters; repeats the evaluation if the testing worker fails."""
  context.ledger.is_final_evaluation_due = True
  _start_others(context, work)
  updates.publish_now(context)
  while context.calls or context.ledger.is_final_evaluation_due:
    if context.should_stop():
      return
    evaluations.request_final(context)
    yield from _react(context, timeout_s=0.5)
    yield from observing.poll()


def _wait_for_closed(ray: Any, closing: list[Any]) -> None:
  """Waits up to ten seconds until the workers have closed their environments.

  Environments may hold resources outside the process.
  """
  if closing:
    ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_TIMEOUT_S)
