"""Tests of training workers that come and go, on a fake cluster whose nodes have room for some of them."""

import dataclasses

import pytest

from moozi.actors import elastic, failures, resources, segments
from moozi.actors.calls import Calls
from moozi.actors.context import Context
from moozi.actors.elastic import ElasticWorkers
from moozi.actors.ledger import Ledger
from moozi.actors.pool import ActorPool
from moozi.actors.roles import ROLES
from moozi.core.actor_report import SERVER, TESTING_WORKER, WORKER, ActorId
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io.config import load_config
from moozi.run.session import RunInputs, Session
from tests.actors import in_process_ray
from tests.actors.ray_nodes import RayWithNodes

# Each training worker needs a core, and the other actors share one.
SHARES = (
  *("ray.address=auto", "workers.resources.num_cpus=1", "ray.learner.num_cpus=0.5"),
  *("ray.replay.num_cpus=0.25", "evaluation.resources.num_cpus=0.25"),
)


class Actor:
  """Stands in for every actor; its calls return at once."""

  def __init__(self, *_, **__):
    self.calls = []

  def __getattr__(self, name):
    if name.startswith("_"):
      raise AttributeError(name)

    def call(*_):
      self.calls.append(name)
      return ("segment", "acted") if name == "run" else name

    return call


class Run:
  """The parts of a run that start and drop training workers."""

  def __init__(self, nodes, *settings):
    self.ray, self._phases = RayWithNodes(nodes), []
    config = load_config(None, [*SHARES, *settings])
    self.ledger = Ledger(config)
    session = Session(RunInputs(config, None, on_phase=self._phases.append), self.ledger)
    self.pool, self.calls = ActorPool(self.ray, session.inputs), Calls(self.ray)
    self.context = Context(self.ray, self.pool, self.calls, self.ledger, session)
    self.elastic = ElasticWorkers(self.context)
    self.pool.start_others()
    elastic.note_shortage(self.context)
    self.poll()

  @property
  def told(self):
    return [text for text in self._phases if text not in ("compiling acting", "compiled acting")]

  def poll(self):
    """Polls until nothing changes; returns the events. Compilations and closings return."""
    events = []
    for _ in range(3):
      self.elastic._next_s = 0.0
      events += self.elastic.poll()
      for call, value, error in self.calls.completed(0.0) if self.calls else ():
        assert error is None
        call.on_result(value)
    return events

  @property
  def running(self):
    return sorted(self.pool.workers)

  @property
  def waiting(self):
    return sorted(actor.index for actor in self.pool.waiting)


@pytest.fixture(autouse=True)
def _actors(monkeypatch):
  for name, role in ROLES.items():
    monkeypatch.setitem(ROLES, name, dataclasses.replace(role, make=Actor))


def test_a_run_starts_with_fewer_workers_and_says_so_once():
  run = Run({"head": {"CPU": 3.0}}, "workers.num_workers=4", "ray.min_workers=1")
  assert (run.running, run.waiting) == ([0, 1], [2, 3])
  note = "the cluster has room for 2 of 4 training workers; the others are started when it has room for them"
  assert run.told == [note]
  run.poll()
  assert run.told == [note]


def test_workers_start_on_a_node_that_joins():
  run = Run({"head": {"CPU": 2.0}}, "workers.num_workers=2", "ray.min_workers=1")
  assert (run.running, run.waiting) == ([0], [1])
  run.ray.add_node("other", CPU=2.0)
  assert run.poll() == []
  assert (run.running, run.waiting) == ([0, 1], [])
  assert run.told[-1] == "training_worker_1 joined; 2 training workers run"


def test_workers_beyond_the_number_are_not_waited_for():
  run = Run({"head": {"CPU": 2.0}}, "ray.max_workers=4")
  assert (run.running, run.waiting) == ([0], [])
  run.ray.add_node("other", CPU=2.5)
  run.poll()
  assert (run.running, run.waiting) == ([0, 1, 2], [])
  run.ray.add_node("third", CPU=8.0)
  run.poll()
  assert (run.running, run.waiting) == ([0, 1, 2, 3], [])


def test_a_head_without_accelerators():
  gpu = ("workers.resources.num_cpus=0.25", "workers.resources.num_gpus=0.5", "workers.num_workers=3")
  run = Run({"head": {"CPU": 8.0}, "gpu": {"CPU": 8.0, "GPU": 1.0}}, *gpu, "ray.min_workers=2")
  nodes = {actor: run.ray.node_of(handle) for actor, handle in run.pool.handles.items()}
  assert {actor for actor, node in nodes.items() if node == "gpu"} == {ActorId(WORKER, 0), ActorId(WORKER, 1)}
  assert run.waiting == [2]


def test_workers_leave_with_notice_after_their_last_segment():
  run = Run({"head": {"CPU": 2.0}, "other": {"CPU": 1.0}}, "workers.num_workers=2")
  index, handle = 1, run.pool.workers[1]
  run.ledger.begin_segment(index)
  run.ray.leaving["other"] = 0
  run.poll()
  assert run.running == [0, 1], "a segment is in flight"
  segments.request(run.context)
  assert run.ledger.segments_in_flight == {0: 2, 1: 1}, "no segment is requested from it"
  run.ledger.segments_in_flight[1] -= 1
  assert list(run.elastic.poll()) == []
  assert run.running == [0]
  assert handle._actor.calls == ["warm_up", "close"]
  assert run.told[-1] == (
    "training_worker_1 was dropped, because its node leaves the cluster; 1 training worker runs"
  )


def test_a_dropped_worker_starts_on_another_node():
  run = Run({"head": {"CPU": 2.0}, "other": {"CPU": 1.0}}, "workers.num_workers=2")
  first = run.pool.workers[1]
  run.ray.leaving["other"] = 0
  assert run.poll() == []
  assert (run.running, run.waiting) == ([0], [1])
  assert first._is_dead
  run.ray.end_node("other")
  run.ray.add_node("third", CPU=1.0)
  assert run.poll() == []
  assert run.running == [0, 1]
  # The constructor's last argument is part of the worker's seeds.
  seeds = [args[2:] for name, args in run.ray.made if len(args) == 4 and args[2] == 1]
  assert len(seeds) == 2
  assert len(set(seeds)) == 2


def test_workers_that_fail_to_start_are_faults():
  run = Run({"head": {"CPU": 2.0}}, "workers.num_workers=3", "ray.min_workers=1")
  for index in (1, 2):
    run.ray.kill(run.pool.waiting[ActorId(WORKER, index)].handle)
  events = run.poll()
  assert [event.counts for event in events] == [{WORKER: 1}, {WORKER: 1}]
  assert events[0].message == "training_worker_1 failed; it is started again when the cluster has room"
  assert run.waiting == [1, 2]


def test_waiting_workers_make_room_when_none_runs():
  run = Run({"head": {"CPU": 1.0}, "other": {"CPU": 1.0}}, "workers.num_workers=2", "ray.min_workers=1")
  assert (run.running, run.waiting) == ([0], [1])
  run.ray.end_node("other")
  failed = run.pool.restart(ActorId(WORKER, 0), 0, 0)
  assert failed.message == "training_worker_0 failed; it is started again when the cluster has room"
  assert (run.running, run.waiting) == ([], [0, 1])
  run.ray.kill(run.pool.server)
  assert "removed" not in run.pool.restart(ActorId(SERVER), 0, 0).message
  assert run.waiting == []
  assert run.ray.node_of(run.pool.server) == "head"
  run.poll()
  assert run.waiting == [0, 1]
  run.ray.add_node("third", CPU=2.0)
  run.poll()
  assert run.running == [0, 1]


def test_other_actors_have_precedence_on_a_smaller_cluster():
  run = Run({"head": {"CPU": 2.0}, "other": {"CPU": 1.0}}, "workers.num_workers=3", "ray.min_workers=2")
  assert (run.running, run.waiting) == ([0, 1], [2])
  run.ray.kill(run.pool.handles[ActorId(TESTING_WORKER)])
  run.ray.node_of(run.pool.server)  # the waiting worker still has no room
  assert "removed" not in run.pool.restart(ActorId(TESTING_WORKER), 0, 0).message
  assert run.waiting == [], "its request is cancelled until the testing worker has started"
  run.poll()
  assert run.waiting == [2]
  run.ray.end_node("other")
  run.ray.kill(run.pool.handles[ActorId(SERVER)])
  restart = run.pool.restart(ActorId(SERVER), 0, 0)
  assert restart.message.endswith("; training_worker_1 failed; it is started again when the cluster has room")
  assert restart.num_ended_workers == 1
  run.poll()
  assert (run.running, run.waiting) == ([0], [1, 2])


def test_a_worker_on_the_node_that_failed_is_removed_first_and_counted():
  """The error of another actor of the node may arrive before that of the worker."""
  run = Run({"head": {"CPU": 1.75}, "other": {"CPU": 2.25}}, "workers.num_workers=3")
  server, worker = run.pool.server, run.pool.workers[0]
  assert [run.ray.node_of(handle) for handle in (server, worker)] == ["head", "head"]
  assert {run.ray.node_of(run.pool.workers[index]) for index in (1, 2)} == {"other"}
  run.ray.end_node("head")
  error, late = (in_process_ray.ActorDiedError(handle._actor_id.hex()) for handle in (server, worker))
  (event,) = failures.on_error(run.context, error)
  assert event.counts == {SERVER: 1, WORKER: 1, "lost_updates": 0}
  assert event.message.endswith(
    "; training_worker_0 failed; it is started again when the cluster has room"
    "; training_worker_2 was removed to free its resources"
  )
  assert run.running == [1]
  assert failures.on_error(run.context, late) == [], "its failure is counted"


def test_a_worker_that_another_restart_has_removed_is_counted_once():
  """The error of Ray's memory monitor names no actor, so all that have failed are restarted."""
  run = Run({"head": {"CPU": 1.75}, "other": {"CPU": 2.25}}, "workers.num_workers=3")
  run.ray.end_node("head")
  events = failures.on_error(run.context, run.ray.exceptions.OutOfMemoryError("killed"))
  assert [event.counts.get(WORKER) for event in events] == [1, None]
  assert [SERVER in event.counts for event in events] == [True, False]
  assert run.running == [1]


def test_rooms_of_nodes():
  def fitting(settings, *nodes):
    return resources.num_fitting(load_config(None, [*SHARES, "ray.max_workers=9", *settings]), nodes)

  assert fitting([], {"CPU": 4.0}) == 3
  assert fitting([], {"CPU": 4.0}, {"CPU": 0.5}) == 3
  assert fitting([], {"CPU": 0.5}, {"CPU": 0.5}) == 0
  assert fitting(["workers.resources.num_cpus=0.1"], {"CPU": 40.0}) == 9
  assert fitting(["workers.resources.num_cpus=0"], {"CPU": 1.0}) == 9
  gpu = ["workers.resources.num_cpus=0.1", "workers.resources.num_gpus=0.3"]
  assert fitting(gpu, {"CPU": 4.0}, {"CPU": 4.0, "GPU": 1.0}) == 3
  assert fitting(gpu, {"CPU": 4.0}, {"CPU": 4.0, "GPU": 2.0}) == 6
  assert fitting([*gpu, "ray.learner.num_gpus=1"], {"CPU": 4.0, "GPU": 2.0}) == 3


def test_a_run_needs_room_for_its_least_number():
  config = load_config(None, [*SHARES, "workers.num_workers=4", "ray.min_workers=2"])
  resources.check_resources(config, {"CPU": 3.0})
  with pytest.raises(UserError, match=r"request 3 CPUs.*workers.resources.num_cpus: 2.*has 2\.5"):
    resources.check_resources(config, {"CPU": 2.5})


def test_numbers_of_workers():
  assert (Config().min_workers, Config().max_workers) == (1, 1)
  several = ["workers.num_workers=3", "ray.min_workers=2", "ray.max_workers=5"]
  config = load_config(None, several)
  assert (config.min_workers, config.max_workers) == (2, 5)
  config = load_config(None, [*several, "runtime=local"])
  assert (config.min_workers, config.max_workers) == (3, 3)
  for key, message in (
    ("ray.min_workers=4", "must be at most workers.num_workers=3"),
    ("ray.max_workers=2", "must be at least workers.num_workers=3"),
  ):
    with pytest.raises(UserError, match=message):
      load_config(None, [*several, key])
  with pytest.raises(UserError, match=r"ray.min_workers=2: must be null with algorithm=ppo"):
    load_config(None, ["algorithm=ppo", "workers.num_workers=2", "ray.min_workers=2"])


def test_replay_must_learn_with_the_least_number():
  settings = ["workers.num_workers=4", "replay.capacity=100000"]
  load_config(None, [*settings, "replay.min_steps_to_learn=60000"])
  with pytest.raises(UserError, match=r"with ray.min_workers=1, replay.capacity=100000 allows at most"):
    load_config(None, [*settings, "replay.min_steps_to_learn=60000", "ray.min_workers=1"])
