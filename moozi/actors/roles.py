"""The tables of actors: for each role its class, number and resources, and what its actors start from.

Ray's own restart would run a constructor with the same arguments. Here, a restarted training or reanalyze
worker has new seeds, a shard of replay starts from its last snapshot, and the parameter server from the
newest checkpoint, if there is one.
"""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from moozi.actors import cluster
from moozi.actors.remote.inference_server import InferenceServer
from moozi.actors.remote.parameter_server import ParameterServer
from moozi.actors.remote.replay_buffer import ReplayActor
from moozi.actors.remote.round_actors import OnPolicyServer, RolloutWorker
from moozi.actors.remote.workers import ReanalyzeWorker, TestingWorker, TrainingWorker
from moozi.core.actor_report import (
  INFERENCE_SERVER,
  REANALYZE_WORKER,
  REPLAY,
  SERVER,
  TESTING_WORKER,
  WORKER,
  ActorId,
)
from moozi.core.config import ActorResources, Config
from moozi.replay.shard_snapshots import divided
from moozi.replay.shards import lanes_of
from moozi.replay.snapshot import num_added
from moozi.run.session import RunInputs


class At(NamedTuple):
  """When an actor is started.

  Attributes:
    seed_step: part of a worker's seeds; another number at each restart.
    learner_step: the learner step from which a restarted parameter server continues.
    is_restart: whether the actor is restarted after a failure.
  """

  seed_step: int
  learner_step: int = 0
  is_restart: bool = False


class Start(NamedTuple):
  """What an actor starts from.

  Attributes:
    arguments: arguments of the actor's constructor, after the configuration and the spec.
    text: the end of the message of a restart.
    learner_steps: the learner step at which the parameters of a restarted parameter server were saved.
    num_added: number of steps ever added to the shard of replay when its snapshot was taken; 0 without one.
  """

  arguments: tuple[Any, ...] = ()
  text: str = ""
  learner_steps: int = 0
  num_added: int = 0


def _from_checkpoint(inputs: RunInputs, actor: ActorId, at: At) -> Start:
  """Starts as the run itself; a restarted server from the newest checkpoint, if there is one."""
  first = None if inputs.state is None else inputs.state.training
  if not at.is_restart:
    return Start((first,))
  # Updates are lost, but the learner step does not decrease, so that versions never repeat.
  state = inputs.latest()
  training = first if state is None else state.training
  if training is None:
    text = " with the initial parameters, because there is no checkpoint yet"
    return Start((None, at.learner_step), text)
  found = int(training.learner_step)
  why = ", the run's initial state, because there is no checkpoint yet" if state is None else ""
  return Start((training, at.learner_step), f" from learner step {found:,}{why}", learner_steps=found)


def _from_snapshot(inputs: RunInputs, actor: ActorId, at: At) -> Start:
  """Starts from a shard's part of the last snapshot of replay; empty if there is none."""
  state = inputs.latest(with_replay=True) if at.is_restart else inputs.state
  stored = None if inputs.stored is None else inputs.stored.lane_steps
  if state is None or state.replay is None:
    return Start((None, stored, actor.index), " empty: there is no snapshot yet")
  snapshot = divided(state.replay, lanes_of(inputs.config), actor.index or 0)
  arguments = snapshot, stored, actor.index
  return Start(arguments, " from its last snapshot", num_added=num_added(snapshot))


def _with_new_seeds(inputs: RunInputs, actor: ActorId, at: At) -> Start:
  """Starts with new environments and random numbers, also in a resumed run."""
  return Start((actor.index, at.seed_step))


def _again(inputs: RunInputs, actor: ActorId, at: At) -> Start:
  """Starts as the first time, with the configuration and the spec only."""
  return Start()


@dataclasses.dataclass(frozen=True)
class Role:
  """One kind of actor.

  Attributes:
    make: the class.
    key: the configuration's key of the resources of one actor: processors, GPUs, threads, niceness.
    start: (inputs, actor, at) → what the actor starts or restarts from.
    count: returns the number of actors, which then have an index; None: one, without an index.
    has_plugins: whether its process loads the user's functions.
    max_calls: the number of calls that run at a time, for an actor that other actors call; they find it by
      its name. None: one, and only the driver calls it.
    num_hosts: the number of hosts of one actor; it has a process with these resources on each.
    has_heartbeat: whether an actor that hangs is noticed (`heartbeats`). Its calls then do not run in the
      main thread of its process.
  """

  make: type
  key: str
  start: Callable[[RunInputs, ActorId, At], Start]
  count: Callable[[Config], int | None] = lambda config: None
  has_plugins: bool = True
  max_calls: Callable[[Config], int] | None = None
  num_hosts: Callable[[Config], int] = lambda config: 1
  has_heartbeat: Callable[[Config], bool] = lambda config: False

  def resources(self, config: Config) -> ActorResources:
    """Returns the resources of one actor."""
    found: ActorResources = operator.attrgetter(self.key)(config)
    return found

  def options(self, config: Config, actor: ActorId) -> dict[str, Any]:
    """Returns Ray's options for one actor."""
    options = cluster.options(self.resources(config), is_spread(actor))
    if self.max_calls is not None:
      options |= {"name": str(actor), "max_concurrency": self.max_calls(config)}
    if self.has_heartbeat(config):
      options |= {"concurrency_groups": {cluster.HEARTBEAT: 1}}
    return options


def is_spread(actor: ActorId) -> bool:
  """Returns whether Ray places the actors of this role on the nodes in turn, as far as they have room.

  These are the actors with an index: training and reanalyze workers, inference servers, and several shards of
  replay.
  """
  # By default, Ray uses a second node when half of the driver's is reserved.
  return actor.index is not None


def _num_reanalyze_workers(config: Config) -> int:
  return config.reanalyze.num_workers if config.reanalyze.ratio else 0


def _num_shards(config: Config) -> int | None:
  return config.ray.replay_shards if config.ray.replay_shards > 1 else None


def _max_calls(config: Config) -> int:
  """Returns the number of an inference server's threads: two per training worker, and four more."""
  return 2 * config.max_workers + 4


ROLES = {
  # On one host, updates run in the main thread, whose freed memory glibc keeps (docs/decisions/0024).
  SERVER: Role(
    ParameterServer,
    "ray.learner",
    _from_checkpoint,
    num_hosts=lambda config: config.learner.num_hosts,
    has_heartbeat=lambda config: config.learner.num_hosts > 1,
  ),
  # Replay loads no plug-ins, so that its process stays free of JAX.
  REPLAY: Role(ReplayActor, "ray.replay", _from_snapshot, _num_shards, has_plugins=False),
  INFERENCE_SERVER: Role(
    InferenceServer,
    "acting.resources",
    _again,
    lambda c: c.num_inference_servers,
    max_calls=_max_calls,
    has_heartbeat=lambda config: True,
  ),
  WORKER: Role(TrainingWorker, "workers.resources", _with_new_seeds, lambda c: c.num_acting_workers),
  REANALYZE_WORKER: Role(ReanalyzeWorker, "reanalyze.resources", _with_new_seeds, _num_reanalyze_workers),
  TESTING_WORKER: Role(TestingWorker, "evaluation.resources", _again),
}
"""The roles of a run that learns from replay, by name."""

ON_POLICY_ROLES = {
  SERVER: dataclasses.replace(ROLES[SERVER], make=OnPolicyServer),
  WORKER: dataclasses.replace(ROLES[WORKER], make=RolloutWorker),
  TESTING_WORKER: ROLES[TESTING_WORKER],
}
"""The roles of an on-policy run, by name."""


def roles_of(config: Config) -> dict[str, Role]:
  """Returns the roles of a run, by name."""
  return ON_POLICY_ROLES if config.is_on_policy else ROLES


def actors_of(role: str, config: Config) -> list[ActorId]:
  """Returns the actors of a role in a run; none if the run does not have the role."""
  roles = roles_of(config)
  if role not in roles:
    return []
  count = roles[role].count(config)
  return [ActorId(role)] if count is None else [ActorId(role, i) for i in range(count)]


def shard_actor(config: Config, shard: int) -> ActorId:
  """Returns the actor of a shard of replay, by the index of the shard; without shards, of replay."""
  return actors_of(REPLAY, config)[shard]
