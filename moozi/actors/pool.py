"""Starts the actors of a run, finds them by id, and restarts them after a failure."""

import collections
import pickle
from typing import Any, NamedTuple

from moozi.actors import cluster
from moozi.actors.remote.process import Setup
from moozi.actors.resources import SHARES
from moozi.actors.roles import At, Start, actors_of, roles_of
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, TESTING_WORKER, WORKER, ActorId
from moozi.core.config import uses
from moozi.core.errors import RunError
from moozi.run.on_policy import OnPolicyParts
from moozi.run.session import RunInputs

_FILLS_IN_FLIGHT = 16
_FAILED_TIMEOUT_S = 2.0


class Restart(NamedTuple):
  """The outcome of restarting an actor: the text of the fault's event, and what the actor started from."""

  message: str
  start: Start = Start()


class ActorPool:
  """Starts the actors of a run, holds their handles, and restarts them.

  The constructor starts the actors that the first environment step needs; `start_others` starts the others.

  Args:
    ray: the connected `ray` module.
    inputs: the run's inputs.
    parts: the algorithm of an on-policy run; None in other runs.

  Attributes:
    handles: the handles of the actors that are started.
  """

  def __init__(self, ray: Any, inputs: RunInputs, parts: OnPolicyParts | None = None) -> None:
    self._ray, self._inputs, self._config = ray, inputs, inputs.config
    # Pickled here, so that a process without plug-ins does not load them.
    functions = uses.registered_functions(inputs.config)
    self._functions = ray.cloudpickle.dumps(functions) if functions else b""
    self._parts = pickle.dumps(parts) if parts is not None else b""
    self._roles = roles_of(inputs.config)
    self._failures: collections.Counter[ActorId] = collections.Counter()
    self._num_restarts = 0
    self.handles: dict[ActorId, Any] = {}
    # Ray keeps a process ready for each core, so the actors that take longest to start are started first.
    for role in (SERVER, WORKER, REPLAY):
      actors = actors_of(role, self._config)
      for actor in actors if role == REPLAY else actors[:1]:
        self._start(actor, At(inputs.env_steps))
    if inputs.state is not None and inputs.state.replay is not None:
      # Replay has its own copy; these blocks would stay in memory until the run ends.
      inputs.state.replay.blocks.clear()

  def start_others(self) -> list[int]:
    """Starts the remaining actors, and returns the indices of the training workers among them."""
    begun = set(self.workers)
    for role in (WORKER, REANALYZE_WORKER, TESTING_WORKER):
      for actor in actors_of(role, self._config):
        if actor not in self.handles:
          self._start(actor, At(self._inputs.env_steps))
    return [index for index in self.workers if index not in begun]

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
    """The training workers by index; empty if the run does not act."""
    return self._of(WORKER)

  @property
  def reanalyze_workers(self) -> dict[int, Any]:
    """The reanalyze workers by index; empty if reanalyze is off."""
    return self._of(REANALYZE_WORKER)

  def _of(self, role: str) -> dict[int, Any]:
    return {x.index: h for x, h in self.handles.items() if x.role == role and x.index is not None}

  def find(self, error: Any) -> ActorId | None:
    """Returns the actor of an ActorDiedError; None if that actor has been restarted since."""
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
    Raises: RunError: the cluster lacks the resources of an on-policy run, which needs all its workers.
    """
    self._failures[actor] += 1
    if self._failures[actor] > self._config.ray.max_restarts:
      return None
    self._num_restarts += 1
    if self._config.is_on_policy and not self._fits():
      raise RunError(
        f"{actor} failed, and the cluster lacks the resources to restart it; a round needs all workers, so "
        "resume the run with fewer workers.num_workers, or with more nodes"
      )
    removed = self._make_room(actor)
    if actor in removed:
      return Restart(f"{actor} failed and was not restarted: the cluster lacks the resources")
    freed = "".join(f"; {other} was removed to free its resources" for other in removed)
    # The seeds differ from those of a worker that was started at the same step.
    start = self._start(actor, At(env_steps + self._num_restarts, learner_step, is_restart=True))
    return Restart(f"{actor} failed and was restarted{start.text}{freed}", start)

  def _make_room(self, actor: ActorId) -> list[ActorId]:
    """Removes training workers until the remaining actors fit in the cluster; returns the removed ones."""
    removed: list[ActorId] = []
    while not self._fits():
      workers = [x for x in self.handles if x.role == WORKER]
      if len(workers) < 2:
        break  # the last worker stays; Ray then waits for resources of the cluster
      if actor in workers:
        self.handles.pop(actor)
        return [*removed, actor]
      removed.append(max(workers))
      self._ray.kill(self.handles.pop(removed[-1]))
    return removed

  def _fits(self) -> bool:
    available = self._ray.cluster_resources()
    shares = [self._roles[actor.role].resources(self._config) for actor in self.handles]
    return all(
      sum(getattr(share, field) for share in shares) <= available.get(resource, 0.0) + 1e-9
      for resource, field in SHARES
    )

  def _start(self, actor: ActorId, at: At) -> Start:
    """Starts an actor in place of an earlier one; returns what it starts from."""
    role, inputs = self._roles[actor.role], self._inputs
    resources = role.resources(inputs.config)
    functions = self._functions if role.has_plugins else b""
    start = role.start(inputs, actor, at)
    # Shards are for the memory and the network of several nodes.
    is_spread = actor.role == REPLAY and actor.index is not None
    remote = self._ray.remote(**cluster.options(resources, is_spread))(role.make)
    setup = Setup(str(actor), resources, inputs.log_dir, functions, self._parts)
    self.handles[actor] = remote.remote(inputs.config, inputs.spec, *start.arguments, setup=setup)
    if actor.role == REPLAY:
      self._fill_replay()
    return start

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
