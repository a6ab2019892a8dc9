"""Restarts actors that failed, and counts the work that was lost."""

import logging
from typing import Any

from moozi.actors import cluster, updates
from moozi.actors.context import Context
from moozi.actors.pool import Restart
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, WORKER
from moozi.core.errors import RunError
from moozi.run.events import Event, Faulted

_log = logging.getLogger("moozi.driver")


def on_error(context: Context, error: Any) -> list[Event]:
  """Restarts the actor that failed with this error, unless it has been restarted already; returns the events.

  Raises: RunError: the actor failed more often in a row than `ray.max_restarts` allows.
  """
  exceptions, pool = context.ray.exceptions, context.pool
  names: list[str] = []
  if isinstance(error, exceptions.OutOfMemoryError):
    names = pool.find_failed()
  elif isinstance(error, exceptions.ActorDiedError) and (name := pool.name_of(error)) is not None:
    names = [name]
  return [event for name in names for event in _restart(context, name, error)]


def _restart(context: Context, name: str, error: Any) -> list[Event]:
  # An actor whose constructor failed has no log.
  cause = cluster.describe_failure(context.ray, error)
  _log.warning("%s: %s", name, cause)
  restart = context.pool.restart(name, context.ledger.env_steps, context.ledger.next_free_version)
  if restart is None:
    max_restarts = context.config.ray.max_restarts
    raise RunError(
      f"{name} failed more than ray.max_restarts={max_restarts} times in a row: {cause}; see logs/{name}.log"
    ) from error
  if name == SERVER:
    counts = _server_failed(context, restart)
  elif name == REPLAY:
    counts = _replay_failed(context, restart)
  else:
    # The worker's calls in flight report the lost work.
    counts = {name.rpartition("_")[0] if name.startswith((WORKER, REANALYZE_WORKER)) else name: 1}
  return [Faulted(**context.counters(), counts=counts, message=restart.message)]


def _server_failed(context: Context, restart: Restart) -> dict[str, int]:
  """Continues from the newest checkpoint, which the restarted server has loaded; returns fault counts."""
  return {SERVER: 1, "lost_updates": updates.rewind(context, restart.learner_steps)}


def _replay_failed(context: Context, restart: Restart) -> dict[str, int]:
  """Resets all environments, because the restarted replay lacks their episodes; returns fault counts."""
  ledger, pool, calls = context.ledger, context.pool, context.calls
  lost_steps = ledger.restart_replay(restart.num_added)
  for index, worker in pool.workers.items():
    calls.expect(worker.reset.remote(), f"{WORKER}_{index}")
  replay = pool.replay

  def on_ready(value: tuple[bool, str]) -> list[Event]:
    if replay is pool.replay:
      ledger.can_sample = value[0]
    return []

  # Not a result of its work, which would reset the count of failures.
  calls.expect(replay.ready.remote(), f"start of {REPLAY}", on_ready)
  return {REPLAY: 1} | ({"lost_steps": lost_steps} if context.config.num_acting_workers else {})
