"""Tests of the driver's heartbeats, with a clock and answers that the tests set."""

import types

import pytest

from moozi.actors import driver, heartbeats
from moozi.actors.heartbeats import Heartbeats
from moozi.actors.pool import ActorPool
from moozi.actors.roles import ROLES
from moozi.core.actor_report import INFERENCE_SERVER, SERVER, ActorId
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io.config import load_config
from moozi.run.session import RunInputs
from tests.actors import in_process_ray

SERVERS = [ActorId(INFERENCE_SERVER, index) for index in range(2)]
TIMEOUT_S = 10


class Silent(in_process_ray.Ray):
  """A fake cluster, in which actors may be silent: their answers do not arrive.

  Attributes:
    silent: the ids of these actors.
    ended: the ids of the actors that were ended.
  """

  def __init__(self):
    super().__init__()
    self.silent, self.ended, self.lost = set(), [], set()

  def call(self, handle, name, args):
    actor_id = handle._actor_id.hex()
    if actor_id in self.lost:
      raise self.exceptions.RayActorError("the connection was lost")
    return actor_id

  def wait(self, references, num_returns=1, timeout=None):
    assert timeout == 0.0, "the driver does not wait"
    ready = [reference for reference in references if reference.value not in self.silent]
    return ready, [reference for reference in references if reference not in ready]

  def kill(self, handle):
    self.ended.append(handle._actor_id.hex())


class Run:
  """Two inference servers, and the driver's heartbeats."""

  def __init__(self, monkeypatch):
    self.now_s, self.ray = 0.0, Silent()
    monkeypatch.setattr(heartbeats.time, "monotonic", lambda: self.now_s)
    self.heartbeats = Heartbeats(self.ray, TIMEOUT_S)
    self.handles = {actor: self.ray.remote()(object).remote() for actor in SERVERS}

  @property
  def ids(self):
    return [handle._actor_id.hex() for handle in self.handles.values()]

  def run(self, seconds, step_s=1.0):
    """Lets the driver check at each step for some seconds."""
    for _ in range(round(seconds / step_s)):
      self.now_s += step_s
      self.heartbeats.check(self.handles)


@pytest.fixture
def run(monkeypatch):
  return Run(monkeypatch)


def test_the_time_without_an_answer_is_longer_than_between_two_questions():
  load_config(None, ["ray.heartbeat_timeout_s=10"])
  with pytest.raises(UserError, match=r"ray\.heartbeat_timeout_s"):
    load_config(None, ["ray.heartbeat_timeout_s=9"])


def test_an_actor_that_answers_is_not_ended(run):
  run.run(20 * TIMEOUT_S)
  assert run.ray.ended == []


def test_a_silent_actor_is_ended_once_and_within_its_time(run, caplog):
  run.run(6)
  run.ray.silent.add(run.ids[1])
  run.run(TIMEOUT_S)
  assert run.ray.ended == []
  run.run(4)
  assert run.ray.ended == [run.ids[1]]
  assert "inference_server_1 has not answered for 12 s, and is ended" in caplog.text
  run.run(10 * TIMEOUT_S)
  assert run.ray.ended == [run.ids[1]]


def test_an_actor_in_its_place_is_watched_from_its_own_start(run):
  run.run(6)
  run.ray.silent.add(run.ids[0])
  run.run(20)
  run.handles[SERVERS[0]] = run.ray.remote()(object).remote()
  new = run.ids[0]
  run.ray.silent.add(new)
  run.run(10 * TIMEOUT_S)
  assert new not in run.ray.ended, "it waits for room, or starts"
  run.ray.silent.remove(new)
  run.run(6)
  run.ray.silent.add(new)
  run.run(TIMEOUT_S + 4)
  assert run.ray.ended[-1] == new


def test_answers_that_a_broken_connection_loses_do_not_count(run):
  run.run(6)
  run.ray.lost.add(run.ids[0])
  run.run(TIMEOUT_S - 4)
  run.ray.lost.clear()
  run.run(20)
  assert run.ray.ended == []
  run.ray.lost.add(run.ids[0])
  run.run(TIMEOUT_S + 6)
  assert run.ray.ended == [run.ids[0]]


def test_a_driver_that_was_suspended_ends_no_actor(run):
  run.run(6)
  run.ray.silent.update(run.ids)
  run.run(100 * TIMEOUT_S, step_s=100 * TIMEOUT_S)
  run.ray.silent.clear()
  run.run(20)
  assert run.ray.ended == []


def test_a_silent_actor_is_ended_within_its_time_at_the_end_of_a_run(run):
  class Calls:
    def __bool__(self):
      return not run.ray.ended

    def completed(self, timeout_s):
      run.now_s += timeout_s
      return []

  run.run(6)
  run.ray.silent.add(run.ids[0])
  began_s, pool = run.now_s, types.SimpleNamespace(end_hung=lambda: run.heartbeats.check(run.handles))
  assert list(driver._drain(types.SimpleNamespace(calls=Calls(), pool=pool))) == []
  assert run.now_s - began_s <= TIMEOUT_S + 4


def test_inference_servers_and_a_learner_on_several_hosts_have_heartbeats(monkeypatch):
  several = load_config(None, ["learner.num_hosts=2"])
  assert [role for role, x in ROLES.items() if x.has_heartbeat(Config())] == [INFERENCE_SERVER]
  assert [role for role, x in ROLES.items() if x.has_heartbeat(several)] == [SERVER, INFERENCE_SERVER]
  assert "concurrency_groups" not in ROLES[SERVER].options(Config(), ActorId(SERVER))
  checked = []
  monkeypatch.setattr(Heartbeats, "check", lambda self, handles: checked.append(list(handles)))
  monkeypatch.setattr(ActorPool, "_start", lambda self, actor, at: self.handles.update({actor: None}))
  config = load_config(None, ["acting.mode=server", "workers.num_workers=2", "acting.num_servers=2"])
  pool = ActorPool(in_process_ray.RAY, RunInputs(config, None))
  pool.end_hung()
  assert checked == [SERVERS]
