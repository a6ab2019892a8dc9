"""Starts the actors of a run, finds them by name, and restarts them after a failure.

Ray's own restart would only run an actor's constructor again. The pool also passes the state from which an
actor continues: new seeds to a worker, the last snapshot to replay, the newest checkpoint (before the first,
the initial state) to the parameter server.
"""

import collections
import dataclasses
from typing import Any

from moozi.actors import cluster
from moozi.actors.remote.parameter_server import ParameterServer
from moozi.actors.remote.replay_buffer import ReplayActor
from moozi.actors.remote.workers import ReanalyzeWorker, TestingWorker, TrainingWorker
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, TESTER, WORKER
from moozi.core.config import ActorResources, uses
from moozi.run.session import RunInputs

_FILLS_IN_FLIGHT = 16
_FAILED_TIMEOUT_S = 2.0


@dataclasses.dataclass(frozen=True)
class Restart:
  """The outcome of restarting an actor.

  Attributes:
    message: the text of the fault's event.
    learner_steps: the learner step at which the parameter server's parameters were saved.
    num_added: number of steps ever added to replay when its snapshot was taken.
  """

  message: str
  learner_steps: int = 0
  num_added: int = 0


class ActorPool:
  """Starts the actors of a run, holds their handles, and restarts them.

  The constructor starts the actors that the first environment step needs; `start_others` starts the others.

  Args:
    ray: the connected `ray` module.
    inputs: the run's inputs.

  Attributes:
    server, replay, tester: actor handles; `tester` is None until it is started.
    workers: the training workers by index; empty if the run does not act.
    reanalyze_workers: the reanalyze workers by index; empty if reanalyze is off.
  """

  def __init__(self, ray: Any, inputs: RunInputs) -> None:
    self._ray, self._inputs, self._config = ray, inputs, inputs.config
    # Pickled here, so that the replay buffer's process does not load them and stays free of JAX.
    functions = uses.registered_functions(inputs.config)
    self._functions = ray.cloudpickle.dumps(functions) if functions else b""
    self._failures: dict[str, int] = {}
    self._num_restarts = 0
    config, state = inputs.config, inputs.state
    # A parameter server that fails before the first checkpoint continues from this state.
    self._first = None if state is None else state.training
    self.server = self._start(SERVER, self._first)
    # Ray keeps a process ready for each core, so the actors that take longest to start are started first.
    self.workers: dict[int, Any] = {}
    self._start_workers(min(1, config.num_acting_workers))
    self.replay = self._start_replay(None if state is None else state.replay)
    if state is not None and state.replay is not None:
      # Replay has its own copy; these blocks would stay in memory until the run ends.
      state.replay.blocks.clear()
    self.reanalyze_workers: dict[int, Any] = {}
    self.tester: Any = None

  def start_others(self) -> list[int]:
    """Starts the remaining actors, and returns the indices of the training workers among them."""
    first = len(self.workers)
    self._start_workers(self._config.num_acting_workers)
    config = self._config.reanalyze
    for i in range(config.num_workers if config.ratio else 0):
      self.reanalyze_workers[i] = self._start(f"{REANALYZE_WORKER}_{i}", i, self._inputs.env_steps)
    self.tester = self._start(TESTER)
    return list(self.workers)[first:]

  def _start_workers(self, number: int) -> None:
    # A training worker's environments are not saved: in a resumed run they are reset.
    for i in range(len(self.workers), number):
      self.workers[i] = self._start(f"{WORKER}_{i}", i, self._inputs.env_steps)

  def handles(self) -> dict[str, Any]:
    """Returns the handles of all actors by name."""
    tester = {} if self.tester is None else {TESTER: self.tester}
    workers = {f"{WORKER}_{i}": handle for i, handle in self.workers.items()}
    reanalyze_workers = {f"{REANALYZE_WORKER}_{i}": handle for i, handle in self.reanalyze_workers.items()}
    return {SERVER: self.server, REPLAY: self.replay} | tester | workers | reanalyze_workers

  def name_of(self, error: Any) -> str | None:
    """Returns the name of the actor in an ActorDiedError; None if that actor has been restarted since."""
    for name, handle in self.handles().items():
      if handle._actor_id.hex() == error.actor_id:
        return name
    return None

  def find_failed(self) -> list[str]:
    """Returns the names of the actors that have failed, for an error that does not name its actor.

    A call of a failed actor fails at once; that of an actor at work has no result until the timeout.
    """
    calls = {handle.__ray_ready__.remote(): name for name, handle in self.handles().items()}
    found = []
    for reference in self._ray.wait(list(calls), num_returns=len(calls), timeout=_FAILED_TIMEOUT_S)[0]:
      try:
        self._ray.get(reference)
      except cluster.lost_errors(self._ray):
        found.append(calls[reference])
    return found

  def reset_failures(self, name: str) -> None:
    """Resets an actor's failure count, after one of its calls has returned a result."""
    self._failures.pop(name, None)

  def restart(self, name: str, env_steps: int, learner_steps: int) -> Restart | None:
    """Restarts an actor.

    Args:
      name: name of the failed actor.
      env_steps: the run's environment steps now.
      learner_steps: the learner step from which a parameter server continues.
    Returns: the outcome; None if the actor failed too often in a row.
    """
    self._failures[name] = self._failures.get(name, 0) + 1
    if self._failures[name] > self._config.ray.max_restarts:
      return None
    self._num_restarts += 1
    removed = self._make_room(name)
    if name in removed:
      return Restart(f"{name} failed and was not restarted: the cluster lacks the resources")
    freed = "".join(f"; {other} was removed to free its resources" for other in removed)
    message = f"{name} failed and was restarted{freed}"
    if name == SERVER:
      return self._restart_server(message, learner_steps)
    if name == REPLAY:
      return self._restart_replay(message)
    if name == TESTER:
      self.tester = self._start(TESTER)
      return Restart(message)
    index = int(name.rpartition("_")[2])
    workers = self.reanalyze_workers if name.startswith(REANALYZE_WORKER) else self.workers
    # The seeds differ from those of a worker that was started at the same step.
    workers[index] = self._start(name, index, env_steps + self._num_restarts)
    return Restart(message)

  def _restart_server(self, message: str, learner_steps: int) -> Restart:
    state = self._inputs.latest()
    training = self._first if state is None else state.training
    # Updates are lost, but the learner step does not decrease, so that versions never repeat.
    self.server = self._start(SERVER, training, learner_steps)
    if training is None:
      return Restart(f"{message} with the initial parameters, because there is no checkpoint yet")
    found = int(training.learner_step)
    why = ", the run's initial state, because there is no checkpoint yet" if state is None else ""
    return Restart(f"{message} from learner step {found:,}{why}", learner_steps=found)

  def _restart_replay(self, message: str) -> Restart:
    state = self._inputs.latest(with_replay=True)
    snapshot = None if state is None else state.replay
    self.replay = self._start_replay(snapshot)
    if snapshot is None:
      return Restart(f"{message} empty: there is no snapshot yet")
    return Restart(f"{message} from its last snapshot", num_added=snapshot.num_added)

  def _make_room(self, name: str) -> list[str]:
    """Removes training workers until the remaining actors fit in the cluster; returns the removed names."""
    removed: list[str] = []
    while not self._fits():
      others = [i for i in self.workers if f"{WORKER}_{i}" != name]
      if name.startswith(WORKER) and others:
        self.workers.pop(int(name.rpartition("_")[2]))
        return [*removed, name]
      if len(self.workers) < 2:
        break  # the last worker stays; Ray then waits for resources of the cluster
      index = max(self.workers)
      self._ray.kill(self.workers.pop(index))
      removed.append(f"{WORKER}_{index}")
    return removed

  def _fits(self) -> bool:
    available = self._ray.cluster_resources()
    shares = [self._resources(name) for name in self.handles()]
    return all(
      sum(getattr(share, field) for share in shares) <= available.get(resource, 0.0) + 1e-9
      for resource, field in cluster.SHARES
    )

  def _resources(self, name: str) -> ActorResources:
    config = self._config
    fixed = {SERVER: config.ray.learner, REPLAY: config.ray.replay, TESTER: config.evaluation.resources}
    if name.startswith(REANALYZE_WORKER):
      return config.reanalyze.resources
    return fixed.get(name, config.workers.resources)

  def _start_replay(self, snapshot: Any) -> Any:
    """Starts replay from a snapshot, or empty (None), and fills it with the trajectories on disk."""
    stored = self._inputs.stored
    replay = self._start(REPLAY, snapshot, None if stored is None else stored.lane_steps)
    pending: collections.deque[Any] = collections.deque()
    for lane, steps in () if stored is None else stored.read():
      assert stored is not None
      pending.append(replay.fill_lane.remote(stored.where, lane, steps))
      if len(pending) > _FILLS_IN_FLIGHT:
        self._ray.get(pending.popleft())
    self._ray.get(list(pending))
    return replay

  def _start(self, name: str, *args: Any) -> Any:
    classes = {SERVER: ParameterServer, REPLAY: ReplayActor, TESTER: TestingWorker}
    default = ReanalyzeWorker if name.startswith(REANALYZE_WORKER) else TrainingWorker
    remote = self._ray.remote(**cluster.options(self._resources(name)))(classes.get(name, default))
    inputs = self._inputs
    kwargs = {"functions": self._functions} if self._functions and name != REPLAY else {}
    return remote.remote(inputs.config, inputs.spec, *args, log_dir=inputs.log_dir, **kwargs)
