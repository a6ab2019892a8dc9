"""Starts the actors of a run, finds them by id, and restarts them after a failure."""

import collections
import functools
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from moozi.actors import cluster
from moozi.actors.heartbeats import Heartbeats
from moozi.actors.remote.process import Setup
from moozi.actors.resources import SHARES, num_fitting, text_of
from moozi.actors.roles import At, Start, actors_of, roles_of
from moozi.core.actor_report import (
  INFERENCE_SERVER,
  REANALYZE_WORKER,
  REPLAY,
  SERVER,
  TESTING_WORKER,
  WORKER,
  ActorId,
)
from moozi.core.config import uses
from moozi.core.errors import RunError, one_line
from moozi.run.on_policy import OnPolicyParts
from moozi.run.session import RunInputs

_FILLS_IN_FLIGHT = 16
_FAILED_TIMEOUT_S = 2.0
# Maximum time to wait until Ray frees the name of a killed actor, and the time between two attempts.
_NAME_TIMEOUT_S, _NAME_RETRY_S = 30.0, 0.05


class Restart(NamedTuple):
  """The outcome of restarting an actor.

  Attributes:
    message: the text of the fault's event.
    start: what the actor started from.
    num_ended_workers: number of training workers that were removed and had ended.
  """

  message: str
  start: Start = Start()
  num_ended_workers: int = 0


class WaitingWorker(NamedTuple):
  """A training worker that Ray has not started yet.

  Attributes:
    handle: the worker's handle.
    ready: reference to a result that arrives, or fails, when the worker has started.
    is_join: whether its start is reported to the user.
  """

  handle: Any
  ready: Any
  is_join: bool


class ActorPool:
  """Starts the actors of a run, holds their handles, and restarts them.

  The constructor starts the parameter server, the inference servers, the first training worker and replay;
  `start_others` starts the others. In a run with replay, training workers join and leave: all that are
  started after the constructor get their first call once Ray has started them.

  Args:
    ray: the connected `ray` module.
    inputs: the run's inputs.
    parts: the algorithm of an on-policy run; None in other runs.

  Attributes:
    handles: the handles of the actors that are called. Ray may not have started them yet.
    waiting: the training workers that Ray has not started yet, for example because no node has room.
    leaving: indices of the training workers that get no more segments, because their node leaves the cluster.
    num_fitting: the result of `resources.num_fitting` when `fill` was last called.
  """

  def __init__(self, ray: Any, inputs: RunInputs, parts: OnPolicyParts | None = None) -> None:
    self._ray, self._inputs, self._config = ray, inputs, inputs.config
    # Pickled here, so that a process without plug-ins does not load them.
    functions = uses.registered_functions(inputs.config)
    self._functions = ray.cloudpickle.dumps(functions) if functions else b""
    self._parts = pickle.dumps(parts) if parts is not None else b""
    self._roles = roles_of(inputs.config)
    num_hosts = self._roles[SERVER].num_hosts(inputs.config)
    # The hosts of the learner keep their resources when the parameter server is restarted.
    self._hosts = None
    if num_hosts > 1:
      self._hosts = cluster.host_group(ray, inputs.config.ray.learner, num_hosts)
    self._heartbeats = Heartbeats(ray, inputs.config.ray.heartbeat_timeout_s)
    self._failures: collections.Counter[ActorId] = collections.Counter()
    # Number of actors that were replaced or dropped.
    self._num_ended = 0
    self.handles: dict[ActorId, Any] = {}
    self.waiting: dict[ActorId, WaitingWorker] = {}
    self.leaving: set[int] = set()
    self.num_fitting = 0
    # The other actors, by reference, that Ray has not started yet.
    self._unplaced: set[Any] = set()
    # Ray keeps a process ready for each core, so the actors that take longest to start are started first.
    roles = {role: actors_of(role, self._config) for role in (SERVER, INFERENCE_SERVER, WORKER, REPLAY)}
    for actor in (*roles[SERVER], *roles[INFERENCE_SERVER], *roles[WORKER][:1], *roles[REPLAY]):
      self._start(actor, At(inputs.env_steps))
    if inputs.state is not None and inputs.state.replay is not None:
      # Replay has its own copy; these blocks would stay in memory until the run ends.
      inputs.state.replay.blocks.clear()

  def start_others(self) -> None:
    """Starts the remaining actors. In a run with replay, training workers are `waiting` first."""
    if not self._config.is_on_policy:
      self.fill(self._inputs.env_steps, is_join=False)
    for role in (WORKER, REANALYZE_WORKER, TESTING_WORKER):
      if role == WORKER and not self._config.is_on_policy:
        continue
      for actor in actors_of(role, self._config):
        if actor not in self.handles:
          self._start(actor, At(self._inputs.env_steps))

  def host_shortage(self) -> str | None:
    """Returns what the hosts of the learner wait for; None if they have it, or if there is one host."""
    if self._hosts is None or cluster.is_placed(self._ray, self._hosts):
      return None
    count, each = self._config.learner.num_hosts, text_of(self._config.ray.learner)
    return f"waiting for room for the learner's {count} hosts, each of which needs {each} on one node"

  # --- training workers that come and go --------------------------------------------------------------

  @property
  def is_short(self) -> bool:
    """Whether the run has fewer training workers than `workers.num_workers`.

    Waiting workers count, and workers that leave do not.
    """
    return self._num_workers < self._config.num_acting_workers

  @property
  def _num_workers(self) -> int:
    return len(self.workers) - len(self.leaving) + len(self.waiting)

  def fill(self, env_steps: int, is_join: bool = True) -> None:
    """Starts training workers up to `workers.num_workers`, and up to `ray.max_workers` if they have room.

    Workers without room wait until Ray finds a node, also one that Ray's autoscaler adds for them. They are
    not requested while Ray has not started all other actors, which need the room first. Waiting workers
    beyond these numbers are cancelled.

    Args:
      env_steps: the run's environment steps now.
      is_join: as in `WaitingWorker`.
    """
    wanted = self._config.num_acting_workers
    if not wanted:
      return
    self.num_fitting = num_fitting(self._config, cluster.node_resources(self._ray))
    wanted = self.num_fitting if self._unplaced else max(wanted, self.num_fitting)
    for index in range(self._config.max_workers):
      actor = ActorId(WORKER, index)
      if self._num_workers < wanted and actor not in self.handles and actor not in self.waiting:
        self._start(actor, At(env_steps + self._num_ended), is_join)
    while self.waiting and self._num_workers > wanted:
      self._cancel(max(self.waiting))

  def take_started(self) -> Iterator[tuple[ActorId, bool, Exception | None]]:
    """Yields (worker, its `is_join`, error) of the waiting workers that have started or failed.

    Workers that have started are then among `handles`. The caller restarts those that have failed.
    """
    references = [*self._unplaced, *(worker.ready for worker in self.waiting.values())]
    if not references:
      return
    done = set(self._ray.wait(references, num_returns=len(references), timeout=0.0)[0])
    self._unplaced -= done  # their own calls report a failure
    for actor, worker in list(self.waiting.items()):
      # The caller's restart of another worker may have cancelled this one.
      if worker.ready not in done or self.waiting.get(actor) is not worker:
        continue
      try:
        self._ray.get(worker.ready)
      except cluster.lost_errors(self._ray) as error:
        yield actor, worker.is_join, error
      else:
        self.handles[actor] = self.waiting.pop(actor).handle
        yield actor, worker.is_join, None

  def drop(self, index: int) -> Any:
    """Removes a training worker, and returns its handle. The caller ends it."""
    self.leaving.discard(index)
    self._num_ended += 1
    return self.handles.pop(ActorId(WORKER, index))

  def _cancel(self, actor: ActorId) -> None:
    self._num_ended += 1
    self._ray.kill(self.waiting.pop(actor).handle)

  # --- the actors -------------------------------------------------------------------------------------

  @property
  def server(self) -> Any:
    """The handle of the parameter server."""
    return self.handles[ActorId(SERVER)]

  @property
  def shards(self) -> dict[int, Any]:
    """The shards of replay by index; replay without shards has index 0."""
    return {x.index or 0: handle for x, handle in self.handles.items() if x.role == REPLAY}

  @property
  def testing_worker(self) -> Any:
    """The handle of the testing worker; None until it is started."""
    return self.handles.get(ActorId(TESTING_WORKER))

  @property
  def workers(self) -> dict[int, Any]:
    """The training workers by index, without the waiting ones."""
    return self._of(WORKER)

  @property
  def reanalyze_workers(self) -> dict[int, Any]:
    """The reanalyze workers by index; empty before `start_others`, and if reanalyze is off."""
    return self._of(REANALYZE_WORKER)

  @property
  def inference_servers(self) -> dict[int, Any]:
    """The inference servers by index; empty if training workers decide themselves."""
    return self._of(INFERENCE_SERVER)

  def _of(self, role: str) -> dict[int, Any]:
    return {x.index: h for x, h in self.handles.items() if x.role == role and x.index is not None}

  def end_hung(self) -> None:
    """Ends actors that hang, as far as they have a heartbeat (`Heartbeats`). Their calls then raise."""
    self._heartbeats.check(
      {x: handle for x, handle in self.handles.items() if self._roles[x.role].has_heartbeat(self._config)}
    )

  def find(self, error: Any) -> ActorId | None:
    """Returns the actor of an ActorDiedError; None if that actor has been restarted or removed since."""
    return next((x for x, h in self.handles.items() if h._actor_id.hex() == error.actor_id), None)

  def find_failed(self) -> list[ActorId]:
    """Returns the actors that have failed, for an error that does not name its actor.

    A call of a failed actor fails at once. A call of a busy actor may have no result before the timeout.
    """
    calls = {handle.__ray_ready__.remote(): actor for actor, handle in self.handles.items()}
    found = []
    for reference in self._ray.wait(list(calls), num_returns=len(calls), timeout=_FAILED_TIMEOUT_S)[0]:
      try:
        self._ray.get(reference)
      except cluster.lost_errors(self._ray):
        found.append(calls[reference])
    return found

  def reset_failures(self, actor: ActorId) -> None:
    """Resets an actor's failure count, after one of its calls has returned a result."""
    self._failures.pop(actor, None)

  def restart(self, actor: ActorId, env_steps: int, learner_step: int) -> Restart | None:
    """Restarts an actor.

    Args:
      env_steps: the run's environment steps now.
      learner_step: the learner step from which a parameter server continues.
    Returns: the outcome; None if the actor failed too often in a row.
    Raises: RunError: the cluster lacks the resources of an on-policy run, which needs all its workers; Ray
      does not free the actor's name; or no saved state can be loaded.
    """
    self._failures[actor] += 1
    if self._failures[actor] > self._config.ray.max_restarts:
      return None
    if self._config.is_on_policy and not self._fits():
      raise RunError(
        f"{actor} failed, and the cluster lacks the resources to restart it; a round needs all workers, so "
        "resume the run with fewer workers.num_workers, or with more nodes"
      )
    self._num_ended += 1
    if actor.role == WORKER and not self._config.is_on_policy:
      return self._restart_worker(actor, env_steps)
    removed = {} if self._config.is_on_policy else self._make_room()
    freed = "".join(
      f"; {_failed_text(other)}" if has_ended else f"; {other} was removed to free its resources"
      for other, has_ended in removed.items()
    )
    # The seeds differ from those of a worker that was started at the same step.
    start = self._start(actor, At(env_steps + self._num_ended, learner_step, is_restart=True))
    message = f"{actor} failed and was restarted{start.text}{freed}"
    return Restart(message, start, num_ended_workers=sum(removed.values()))

  def _restart_worker(self, actor: ActorId, env_steps: int) -> Restart:
    self.handles.pop(actor, None)
    self.waiting.pop(actor, None)
    assert actor.index is not None
    self.leaving.discard(actor.index)
    self.fill(env_steps, is_join=False)
    if actor in self.waiting and self._num_workers <= self.num_fitting:
      return Restart(f"{actor} failed and was restarted")
    if actor in self.waiting:
      self.waiting[actor] = self.waiting[actor]._replace(is_join=True)
    return Restart(_failed_text(actor))

  def _make_room(self) -> dict[ActorId, bool]:
    """Removes training workers until the cluster has room for the other actors; the last worker stays.

    Waiting workers are removed first, then those that have ended: a node that fails may end several actors,
    whose errors arrive one after another. The errors of removed workers restart no actor.

    Returns: by removed worker that was not waiting, whether it had ended.
    """
    removed: dict[ActorId, bool] = {}
    if not self._config.num_acting_workers:
      return removed
    fitting = num_fitting(self._config, cluster.node_resources(self._ray))
    while self.waiting and self._num_workers > fitting:
      self._cancel(max(self.waiting))
    # The last worker stays; Ray then waits for resources of the cluster.
    while self._num_workers > max(1, fitting):
      running = set(self.workers) - self.leaving
      ended = {index for index in running if cluster.has_ended(self._ray, self.workers[index])}
      index = max(ended or running)
      removed[ActorId(WORKER, index)] = index in ended
      self._ray.kill(self.drop(index))
    return removed

  def _fits(self) -> bool:
    """Returns whether the cluster has the resources of all actors that are started."""
    available = self._ray.cluster_resources()
    shares = [self._roles[actor.role].resources(self._config) for actor in self.handles]
    return all(
      sum(getattr(share, field) for share in shares) <= available.get(resource, 0.0) + 1e-9
      for resource, field in SHARES
    )

  def _start(self, actor: ActorId, at: At, is_join: bool | None = None) -> Start:
    """Starts an actor, in place of an earlier one if there was one; returns what it starts from.

    Args:
      is_join: as in `WaitingWorker`; None: the actor does not wait.
    """
    role, inputs = self._roles[actor.role], self._inputs
    resources = role.resources(inputs.config)
    functions = self._functions if role.has_plugins else b""
    start = role.start(inputs, actor, at)
    options, placed = role.options(inputs.config, actor), {}
    if actor.role == SERVER and self._hosts is not None:
      options |= cluster.on_host(self._ray, self._hosts, 0)
      placed = {"group": self._hosts}
    remote = self._ray.remote(**options)(role.make)
    setup = Setup(str(actor), resources, inputs.log_dir, functions, self._parts)
    make = functools.partial(
      remote.remote, inputs.config, inputs.spec, *start.arguments, setup=setup, **placed
    )
    if role.max_calls is not None and actor in self.handles:
      # Ray keeps the name of an actor that failed as long as any process has a handle of it, and the training
      # workers have one. It frees the name of a killed actor.
      self._ray.kill(self.handles.pop(actor))
    handle = self._make_when_free(actor, make)
    if is_join is not None:
      self.waiting[actor] = WaitingWorker(handle, handle.__ray_ready__.remote(), is_join)
      return start
    self.handles[actor] = handle
    if actor.role != WORKER:
      self._unplaced.add(handle.__ray_ready__.remote())
    if actor.role == REPLAY:
      self._fill_replay()
    return start

  def _make_when_free(self, actor: ActorId, make: Callable[[], Any]) -> Any:
    """Makes an actor; waits for its name, which Ray frees some time after an earlier actor was killed.

    Raises: RunError: the name stays taken for 30 seconds.
    """
    end_s = time.monotonic() + _NAME_TIMEOUT_S
    while True:
      try:
        return make()
      except self._ray.exceptions.ActorAlreadyExistsError as error:
        if time.monotonic() > end_s:
          raise RunError(f"{actor} cannot be restarted: {one_line(error)}") from error
      time.sleep(_NAME_RETRY_S)

  def _fill_replay(self) -> None:
    """Adds the trajectories on disk to replay, if the run has any."""
    pending: collections.deque[Any] = collections.deque()
    stored = self._inputs.stored
    for lane, steps in () if stored is None else stored.read():
      assert stored is not None
      pending.append(self.shards[0].fill_lane.remote(stored.where, lane, steps))
      if len(pending) > _FILLS_IN_FLIGHT:
        self._ray.get(pending.popleft())
    self._ray.get(list(pending))


def _failed_text(worker: ActorId) -> str:
  return f"{worker} failed; it is started again when the cluster has room"
