"""The actors of a run: made, known by name, and made anew where one died.

An actor that Ray restarts by itself runs its constructor again and nothing else. So it is made anew here,
with what it needs to go on: a worker with other games, replay with its last snapshot, the parameter server
with the newest checkpoint.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from moozi.actors import cluster
from moozi.actors.parameter_server import ParameterServer
from moozi.actors.replay_buffer import ReplayActor
from moozi.actors.workers import ReanalyzeWorker, TestingWorker, TrainingWorker
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, TESTER, WORKER
from moozi.core.config import ActorResources, Config
from moozi.core.pytree import replace
from moozi.core.spec import EnvSpec
from moozi.replay.mixture import StoredTrajectories
from moozi.run.state import RunState

_FILLS_IN_FLIGHT = 16


@dataclasses.dataclass(frozen=True)
class Restart:
  """What became of an actor that died.

  Attributes:
    message: what to tell.
    learner_steps: of the parameter server's state before its step was set to the run's.
    num_added: steps ever added to replay, as its snapshot has them.
    is_back: false where there was no room for a training worker, and the run goes on with fewer.
  """

  message: str
  learner_steps: int = 0
  num_added: int = 0
  is_back: bool = True


class ActorPool:
  """Actor handles by name.

  Args:
    ray: the module, connected.
    config: the run's configuration.
    spec: the environment's facts.
    log_dir: absolute path of the folder for one log file per actor.
    state: what the run begins with.
    latest: reads the newest whole state of the run; None where there is none yet.
    stored: trajectories on disk, which replay is filled with, a new one too.

  Attributes:
    latest: as it was given.
    server, replay, tester: actor handles.
    workers: those of the training workers, by index; none where nobody acts.
    searchers: those of the reanalyze workers, by index; none where reanalyze is off.
  """

  def __init__(
    self,
    ray: Any,
    config: Config,
    spec: EnvSpec,
    log_dir: str | None,
    state: RunState | None,
    latest: Callable[[], RunState | None],
    stored: StoredTrajectories | None = None,
  ) -> None:
    self._stored = stored
    self._ray, self._config, self._spec, self._log_dir, self.latest = ray, config, spec, log_dir, latest
    self._failures: dict[str, int] = {}
    self._num_restarts = 0
    # Where there is no checkpoint yet, a parameter server goes on from it.
    self._first = None if state is None else state.training
    env_steps = 0 if state is None else int(state.progress.get("pacer/env_steps", 0))
    self.server = self._make(SERVER, None if state is None else state.training)
    self.replay = self._make_replay(None if state is None else state.replay)
    if state is not None and state.replay is not None:
      # Replay has its own copy; this one would stay as long as the run does.
      state.replay.blocks.clear()
    # Workers keep their environments to themselves: those of a resumed run begin new games.
    self.workers = {i: self._make(f"{WORKER}_{i}", i, env_steps) for i in range(config.num_acting_workers)}
    num_searchers = config.reanalyze.num_workers if config.reanalyze.ratio else 0
    self.reanalyze_workers = {i: self._make(f"{REANALYZE_WORKER}_{i}", i) for i in range(num_searchers)}
    self.tester = self._make(TESTER)

  def handles(self) -> dict[str, Any]:
    """All actors by name."""
    workers = {f"{WORKER}_{index}": handle for index, handle in self.workers.items()}
    reanalyze_workers = {
      f"{REANALYZE_WORKER}_{index}": handle for index, handle in self.reanalyze_workers.items()
    }
    return {SERVER: self.server, REPLAY: self.replay, TESTER: self.tester} | workers | reanalyze_workers

  def name_of(self, error: Any) -> str | None:
    """Whose death a RayActorError tells of; None where that actor has been made anew since."""
    for name, handle in self.handles().items():
      if handle._actor_id.hex() == error.actor_id:
        return name
    return None

  def has_worked(self, name: str) -> None:
    """An actor brought a result: its failures before are forgiven."""
    self._failures.pop(name, None)

  def restart(self, name: str, env_steps: int, learner_steps: int) -> Restart | None:
    """Makes an actor anew.

    Args:
      name: of one that died.
      env_steps: the run's, now.
      learner_steps: that a parameter server is to go on from.
    Returns: what became of it; None where it died too often in a row.
    """
    self._failures[name] = self._failures.get(name, 0) + 1
    if self._failures[name] > self._config.ray.max_restarts:
      return None
    self._num_restarts += 1
    left_out = self._make_room(name)
    if name in left_out:
      return Restart(f"{name} died, and the cluster has no room for it any more", is_back=False)
    told = f"{name} died and was made anew" + "".join(f"; {other} made room for it" for other in left_out)
    if name == SERVER:
      return self._restart_server(told, learner_steps)
    if name == REPLAY:
      return self._restart_replay(told)
    if name == TESTER:
      self.tester = self._make(TESTER)
      return Restart(told)
    index = int(name.rpartition("_")[2])
    if name.startswith(REANALYZE_WORKER):
      self.reanalyze_workers[index] = self._make(name, index)
      return Restart(told)
    # Other games than those of a worker that began at the same step.
    self.workers[index] = self._make(name, index, env_steps + self._num_restarts)
    return Restart(told)

  def _restart_server(self, told: str, learner_steps: int) -> Restart:
    state = self.latest()
    training = self._first if state is None else state.training
    if training is None:
      self.server = self._make(SERVER, None, learner_steps)
      return Restart(f"{told}, from its first parameters: there is no checkpoint yet")
    found = int(training.learner_step)
    # Versions never go back for the workers; the updates are lost all the same.
    self.server = self._make(SERVER, replace(training, learner_step=np.int32(learner_steps)))
    why = " that the run began with: there is no checkpoint yet" if state is None else ""
    return Restart(f"{told}, from learner step {found:,}{why}", learner_steps=found)

  def _restart_replay(self, told: str) -> Restart:
    state = self.latest()
    snapshot = None if state is None else state.replay
    self.replay = self._make_replay(snapshot)
    if snapshot is None:
      return Restart(f"{told}, empty: there is no snapshot yet")
    return Restart(f"{told}, from its last snapshot", num_added=snapshot.num_added)

  def _make_room(self, name: str) -> list[str]:
    """Leaves training workers out until the others fit what the cluster has left; returns their names."""
    left_out: list[str] = []
    while not self._fits():
      others = [i for i in self.workers if f"{WORKER}_{i}" != name]
      if name.startswith(WORKER) and others:
        self.workers.pop(int(name.rpartition("_")[2]))
        return [*left_out, name]
      if len(self.workers) < 2:
        break  # no fewer will do: wait for the cluster
      index = max(self.workers)
      self._ray.kill(self.workers.pop(index))
      left_out.append(f"{WORKER}_{index}")
    return left_out

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

  def _make_replay(self, snapshot: Any) -> Any:
    """Replay with a snapshot, or empty, and the trajectories on disk in it."""
    stored = self._stored
    replay = self._make(REPLAY, snapshot, None if stored is None else stored.lane_steps)
    on_the_way: collections.deque[Any] = collections.deque()
    for lane, steps in () if stored is None else stored.read():
      assert stored is not None
      on_the_way.append(replay.fill_lane.remote(stored.where, lane, steps))
      if len(on_the_way) > _FILLS_IN_FLIGHT:
        self._ray.get(on_the_way.popleft())
    self._ray.get(list(on_the_way))
    return replay

  def _make(self, name: str, *args: Any) -> Any:
    classes = {SERVER: ParameterServer, REPLAY: ReplayActor, TESTER: TestingWorker}
    default = ReanalyzeWorker if name.startswith(REANALYZE_WORKER) else TrainingWorker
    remote = self._ray.remote(**cluster.options(self._resources(name)))(classes.get(name, default))
    return remote.remote(self._config, self._spec, *args, log_dir=self._log_dir)
