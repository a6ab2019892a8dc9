"""Tests of the parameter server's calls of a learner's other hosts, with fake hosts."""

import dataclasses
import socket
import threading
import types

import jax
import numpy as np
import pytest

from moozi.actors import cluster, driver
from moozi.actors.calls import Calls
from moozi.actors.context import Context
from moozi.actors.elastic import ElasticWorkers
from moozi.actors.ledger import Ledger
from moozi.actors.pool import ActorPool
from moozi.actors.remote import learner_hosts, process
from moozi.actors.remote.learner_hosts import LearnerHost, LearnerHosts, divided
from moozi.actors.remote.parameter_server import ParameterServer
from moozi.actors.resources import demands
from moozi.actors.roles import ROLES
from moozi.core.actor_report import SERVER, ActorId
from moozi.core.config import ActorResources
from moozi.core.errors import NotFiniteError
from moozi.core.pytree import map_fields, record
from moozi.io.config import load_config
from moozi.run.session import RunInputs, Session
from moozi.run.work_log import WorkLog
from tests.actors import in_process_ray
from tests.actors.fakes import actor


@record
class Rows:
  """Stands in for targets: arrays [U, B, …]."""

  slot: np.ndarray
  frames: np.ndarray


BATCH = Rows(slot=np.arange(12).reshape(2, 6), frames=np.arange(36).reshape(2, 6, 3))


def test_parts_of_a_batch_are_in_order_and_equal():
  parts = divided(BATCH, 3)
  assert [part.slot.tolist() for part in parts] == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]
  again = map_fields(lambda *xs: np.concatenate(xs, axis=1), *parts)
  np.testing.assert_array_equal(again.frames, BATCH.frames)


class Results:
  """A fake `ray` whose results are those that the test passes; `ended` is set when the process would end."""

  def __init__(self):
    self._values, self.statuses, self.ended = {}, [], threading.Event()
    self._arrived = threading.Condition()

  def arrive(self, reference, value=None):
    with self._arrived:
      self._values[reference] = value
      self._arrived.notify_all()

  def get(self, reference):
    with self._arrived:
      self._arrived.wait_for(lambda: reference in self._values)
    if isinstance(self._values[reference], Exception):
      raise self._values[reference]
    return self._values[reference]

  def end(self, status):
    self.statuses.append(status)
    self.ended.set()


@pytest.fixture
def run():
  """Returns (ray, two fake hosts, the object that calls them)."""
  ray = Results()
  hosts = [actor(f"host_{i}", "__ray_ready__", "update", "warm_up", "roll_back") for i in (1, 2)]
  return ray, hosts, LearnerHosts(ray, hosts, ray.end)


def test_all_hosts_are_called_in_one_order(run):
  ray, hosts, calls = run
  with calls.calling("warm_up") as own:
    assert own is None
  for number in range(2):
    with calls.calling("update", 0.9 + number, batch=BATCH) as own:
      assert own.slot.tolist() == [[0, 1], [6, 7]]
  with calls.calling("roll_back", "state"):
    pass
  for index, host in enumerate(hosts, start=1):
    assert host.warm_up.asked == [()]
    assert [discount for discount, _ in host.update.asked] == [0.9, 1.9]
    assert [part.slot.tolist() for _, part in host.update.asked] == [
      divided(BATCH, 3)[index].slot.tolist()
    ] * 2
    assert host.roll_back.asked == [("state",)]
  assert not ray.ended.is_set()


class Recorder:
  """Stands in for a learner: records its calls."""

  def __init__(self):
    self.calls = []

  def __getattr__(self, name):
    return lambda *args: self.calls.append((name, *args))


def actor_of(kind, learner, **attributes):
  """Returns an actor of a class with a learner, without its constructor, which starts processes."""
  made = object.__new__(kind)
  vars(made).update(_learner=learner, _work=WorkLog(keeps_spans=False), **attributes)
  return made


def test_all_hosts_learn_with_the_same_share_of_the_time(run):
  _, hosts, calls = run
  own, others = Recorder(), [Recorder(), Recorder()]
  actor_of(ParameterServer, own, _hosts=calls).update(0.9, 0.25, BATCH)
  for learner, host in zip(others, hosts, strict=True):
    actor_of(LearnerHost, learner).update(*host.update.asked[0])
  for learner in (own, *others):
    assert learner.calls[:2] == [("set_discount", 0.9), ("set_time_share", 0.25)]
    assert learner.calls[2][0] in ("update", "advance")


@pytest.mark.parametrize("failed", [1, 2])
def test_a_lost_host_ends_the_process_during_a_collective_computation(run, failed):
  ray, _, calls = run
  for index in (1, 2):
    ray.arrive(f"host_{index}.__ray_ready__/1/0")
  with calls.calling("update", 0.9, batch=BATCH):
    ray.arrive(f"host_{failed}.update/1/0", in_process_ray.ActorDiedError("2"))
    assert ray.ended.wait(60)
  assert ray.statuses == [1]


def test_a_host_that_does_not_start_ends_the_process(run):
  ray, *_ = run
  ray.arrive("host_2.__ray_ready__/1/0", in_process_ray.ActorDiedError("2"))
  assert ray.ended.wait(60)


def test_an_error_of_jax_ends_the_process_and_other_errors_do_not(run):
  ray, _, calls = run
  with pytest.raises(NotFiniteError), calls.calling("update", 0.9, batch=BATCH):
    raise NotFiniteError("too many")
  assert not ray.ended.is_set()
  with pytest.raises(jax.errors.JaxRuntimeError), calls.calling("update", 0.9, batch=BATCH):
    raise jax.errors.JaxRuntimeError("Gloo: connection closed by peer")
  assert ray.statuses == [1]


def test_a_learner_on_one_host_raises_errors_of_jax():
  calls = LearnerHosts(end=lambda status: pytest.fail("must not end the process"))
  with calls.calling("update", 0.9, batch=BATCH) as own:
    assert own is BATCH
  with pytest.raises(jax.errors.JaxRuntimeError), calls.calling("warm_up"):
    raise jax.errors.JaxRuntimeError("out of memory")


class Nothing:
  """Stands in for an actor that is not called."""

  def __init__(self, *_, group=None, **__):
    self.group = group


class PlacingRay(in_process_ray.Ray):
  """A fake cluster with placement groups, which are in `state` and have their bundles on the nodes `places`.

  `listening` has the sockets of all nodes that Ray regards as alive, by id.
  """

  def __init__(self):
    super().__init__()
    self.groups, self.options, self.state = [], [], "CREATED"
    self.places, self.listening = [], {}
    self.util = self
    self.scheduling_strategies = self

  def placement_group(self, bundles, strategy):
    self.groups.append((bundles, strategy))
    return "group"

  def placement_group_table(self, group):
    return {"state": self.state, "bundles_to_node_id": dict(enumerate(self.places))}

  def nodes(self):
    if not self.listening:
      return super().nodes()
    ended = {"NodeID": "ended", "Alive": False}
    return [ended] + [
      {"NodeID": name, "Alive": True, "NodeManagerAddress": host, "NodeManagerPort": port}
      for name, (host, port) in ((name, x.getsockname()) for name, x in self.listening.items())
    ]

  def PlacementGroupSchedulingStrategy(self, group, placement_group_bundle_index):  # noqa: N802
    return group, placement_group_bundle_index

  def remote(self, **options):
    self.options.append(options)
    return super().remote(**options)


@pytest.fixture
def no_actors(monkeypatch):
  for name, role in ROLES.items():
    monkeypatch.setitem(ROLES, name, dataclasses.replace(role, make=Nothing))


THREE = ("learner.num_hosts=3", "learner.batch_size=48", "ray.learner.num_gpus=2", "ray.learner.num_cpus=4")


@pytest.mark.usefixtures("no_actors")
def test_the_hosts_of_a_learner_have_a_placement_group():
  ray, config = PlacingRay(), load_config(None, list(THREE))
  assert demands(config)["ray.learner"] == (3, config.ray.learner)
  pool = ActorPool(ray, RunInputs(config, None))
  assert ray.groups == [([{"CPU": 4.0, "GPU": 2.0}] * 3, "SPREAD")]
  assert ray.options[0] == {
    "num_cpus": 4.0,
    "num_gpus": 2.0,
    "scheduling_strategy": ("group", 0),
    "concurrency_groups": {"heartbeat": 1},
  }
  assert [handle._actor.group for handle in pool.handles.values()] == ["group", None, None]
  pool.restart(ActorId(SERVER), 0, 7)
  assert ray.options[-1]["scheduling_strategy"] == ("group", 0)
  assert (len(ray.groups), pool.server._actor.group) == (1, "group")


class Waiting:
  """A run on three hosts, which wait for room at first; `phases` is what the user reads."""

  def __init__(self):
    self.ray, self.phases = PlacingRay(), []
    config = load_config(None, [*THREE, "ray.address=auto"])
    inputs = RunInputs(config, None, on_phase=self.phases.append)
    ledger, self.pool = Ledger(config), ActorPool(self.ray, inputs)
    self.context = Context(self.ray, self.pool, Calls(self.ray), ledger, Session(inputs, ledger))
    self.ray.state = "PENDING"


SHORTAGE = "waiting for room for the learner's 3 hosts, each of which needs 4 CPUs and 2 GPUs on one node"


@pytest.mark.usefixtures("no_actors")
def test_hosts_that_wait_for_room_at_the_start_are_told_once(monkeypatch):
  run, waits = Waiting(), []

  def wait(references, timeout):
    waits.append(references)
    return (references if len(waits) == 4 else [], [])

  monkeypatch.setattr(run.ray, "wait", wait)
  driver._wait_for_first(run.context, "first")
  assert waits == [["first"]] * 4
  assert run.phases == [SHORTAGE]


@pytest.mark.usefixtures("no_actors")
def test_hosts_that_wait_for_room_in_the_run_are_told_once_each_time():
  run = Waiting()
  run.ray.state = "CREATED"
  run.pool.start_others()
  workers = ElasticWorkers(run.context)
  for state in ("CREATED", "RESCHEDULING", "RESCHEDULING", "CREATED", "RESCHEDULING"):
    run.ray.state, workers._next_s = state, 0.0
    assert list(workers.poll()) == []
  assert [text for text in run.phases if text != "compiling acting"] == [SHORTAGE, SHORTAGE]


@pytest.mark.usefixtures("no_actors")
def test_a_learner_on_one_host_waits_for_no_group():
  assert ActorPool(PlacingRay(), RunInputs(load_config(None, []), None)).host_shortage() is None


def test_a_host_without_cpus_reserves_a_little():
  """Ray refuses a bundle without resources."""
  ray = PlacingRay()
  cluster.host_group(ray, ActorResources(num_cpus=0), 2)
  assert ray.groups == [([{"CPU": 0.001}] * 2, "SPREAD")]


class Group:
  """A fake placement group, whose hosts have room after some checks. The time passes while it waits."""

  def __init__(self, checks=None):
    self._checks, self.waited, self.slept = checks, [], []

  def wait(self, timeout_seconds):
    is_placed = self._checks is not None and len(self.waited) >= self._checks
    self.waited.append(0.0 if is_placed else timeout_seconds)
    return is_placed

  def sleep(self, seconds):
    self.slept.append(seconds)

  def monotonic(self):
    return sum(self.waited) + sum(self.slept)


@pytest.fixture
def start(monkeypatch):
  """Returns a function that starts the hosts of a group, and the fake `ray` that makes them."""
  ray = PlacingRay()
  ray.get_node_ip_address = lambda: "127.0.0.1"
  monkeypatch.setattr(learner_hosts, "connected_ray", lambda: ray)
  monkeypatch.setattr(learner_hosts, "LearnerHost", Nothing)
  config = load_config(None, ["learner.num_hosts=2"])
  setup = process.Setup("parameter_server", config.ray.learner)

  def run(group):
    clock = types.SimpleNamespace(monotonic=group.monotonic, sleep=group.sleep)
    monkeypatch.setattr(learner_hosts, "time", clock)
    return learner_hosts.start_hosts(config, None, None, 0, group, setup)

  return run, ray


def test_hosts_without_room_for_ten_minutes_are_an_error(start, caplog):
  run, ray = start
  group = Group()
  message = r"learner\.num_hosts=2: .*no room .* for 10 minutes; add a machine, or resume with fewer hosts"
  with pytest.raises(RuntimeError, match=message):
    run(group)
  assert sum(group.waited) == 600
  assert not ray.made
  assert caplog.text.count("no room yet for the learner's 2 hosts") == len(group.waited)


def test_hosts_are_started_when_they_have_room(start):
  run, ray = start
  group = Group(checks=2)
  _, place = run(group)
  assert len(group.waited) == 3
  assert (place.number, place.num_hosts) == (0, 2)
  assert [name for name, _ in ray.made] == ["Nothing"]
  assert ray.options[-1]["scheduling_strategy"] == (group, 1)


@pytest.fixture
def nodes(start):
  """Returns the fake `ray` of a group on the nodes `first` and `failed`, which Ray regards as alive."""
  _, ray = start
  with socket.create_server(("127.0.0.1", 0)) as living, socket.socket() as closed:
    closed.bind(("127.0.0.1", 0))  # nothing listens, and no other process can have the port
    ray.listening, ray.places = {"first": living, "failed": closed}, ["first", "failed"]
    yield ray


def test_nodes_that_answer_accept_a_connection(nodes):
  assert not cluster.nodes_answer(nodes, "group")
  nodes.places = ["first", "first"]
  assert cluster.nodes_answer(nodes, "group")
  nodes.places = ["first", "ended"]
  assert not cluster.nodes_answer(nodes, "group"), "Ray has noticed the failure, but has no other node"


def test_no_host_is_started_on_a_node_whose_failure_ray_has_not_noticed(start, nodes, caplog):
  run, ray = start
  group = Group(checks=0)

  def sleep(seconds):
    assert not ray.made
    group.slept.append(seconds)
    if len(group.slept) == 3:  # Ray notices it, and replaces the node
      ray.places = ["first", "first"]

  group.sleep = sleep
  run(group)
  assert [name for name, _ in ray.made] == ["Nothing"]
  assert caplog.text.count("a node of the learner's 2 hosts does not answer") == len(group.slept) == 3


def test_a_node_that_does_not_answer_for_ten_minutes_is_an_error(start, nodes):
  run, ray = start
  ray.places = ["failed", "failed"]  # many connections that the other one does not accept would wait
  group = Group(checks=0)
  with pytest.raises(RuntimeError, match=r"no room .* on nodes that answer, for 10 minutes"):
    run(group)
  assert sum(group.slept) == 600
  assert not ray.made
