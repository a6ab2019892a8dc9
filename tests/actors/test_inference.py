"""Tests of inference servers: who gets the parameters, restarts, and requests that are asked again."""

import dataclasses
import gc
import pickle

import numpy as np
import pytest

from moozi.actors import driver, inference, pool, segments, updates
from moozi.actors.calls import Calls
from moozi.actors.context import Context
from moozi.actors.ledger import Ledger
from moozi.actors.pool import ActorPool
from moozi.actors.remote import inference_client
from moozi.actors.remote.inference_client import RemoteInference
from moozi.actors.roles import ROLES
from moozi.core.actor_report import INFERENCE_SERVER, REPLAY, SERVER, WORKER, ActorId
from moozi.core.errors import RunError
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import Faulted
from moozi.run.session import RunInputs, Session
from tests.actors import in_process_ray
from tests.actors.fakes import actor, make_context
from tests.actors.test_segments import acted
from tests.run_events import assert_equal_trees, final_state
from tests.tiny_run import TINY

SERVED = ("acting.mode=server", "acting.max_wait_ms=0", "workers.num_workers=3", "workers.num_envs=2")
CONFIG = load_config(None, [*TINY, *SERVED, "acting.num_servers=2"])


# --- the driver's calls -------------------------------------------------------------------------------------


@pytest.fixture
def context():
  servers = [actor(f"inference_{i}", "set_parameters", "wait_for_end") for i in range(2)]
  workers = [actor(f"worker_{i}", "run") for i in range(3)]
  handles = {ActorId(INFERENCE_SERVER, i): x for i, x in enumerate(servers)}
  handles |= {ActorId(WORKER, i): x for i, x in enumerate(workers)}
  others = {SERVER: actor("server", "parameters"), REPLAY: actor("replay", "add")}
  return make_context(CONFIG, handles | others)


def test_parameters_go_to_the_servers_and_not_to_the_workers(context):
  reference = updates.publish_now(context)
  segments.request(context)
  for server in context.pool.inference_servers.values():
    assert server.set_parameters.asked == [(reference,)]
  assert {worker.run.asked[0][0] for worker in context.pool.workers.values()} == {None}
  updates._publish(context)
  context.calls.arrive("server.parameters/2/0")
  assert context.pool.inference_servers[1].set_parameters.asked[-1] == ("server.parameters/2/0",)


def test_a_segment_shows_that_its_workers_server_works(context):
  failures = context.pool._failures = {ActorId(INFERENCE_SERVER, i): 2 for i in range(2)}
  segments.request(context)
  context.calls.arrive("worker_2.run/1/1", acted())
  assert list(failures) == [ActorId(INFERENCE_SERVER, 1)]


def test_a_wait_that_is_lost_alone_is_repeated(context):
  inference.watch(context, 0)
  server = context.pool.inference_servers[0]
  ((_, on_failure),) = context.calls.watched.items()
  on_failure(context.ray.exceptions.RayActorError())
  assert len(server.wait_for_end.asked) == 2
  on_failure(context.ray.exceptions.ActorDiedError())
  assert len(server.wait_for_end.asked) == 2


class Server:
  """Stands in for an inference server."""

  def __init__(self, *_, **__):
    self.parameters, self.requests = [], []

  def set_parameters(self, parameters):
    self.parameters.append(parameters)

  def decide(self, request):
    self.requests.append(request)
    return 2 * request


@pytest.fixture
def no_actors(monkeypatch):
  for name, role in ROLES.items():
    monkeypatch.setitem(ROLES, name, dataclasses.replace(role, make=Server))


@pytest.mark.usefixtures("no_actors")
def test_a_server_that_fails_is_restarted_with_the_newest_parameters_until_it_fails_too_often():
  ray, kept = in_process_ray.Ray(), []
  with in_process_ray.connected(ray):
    ledger = Ledger(CONFIG)
    actors = ActorPool(ray, RunInputs(CONFIG, None))
    assert list(actors.inference_servers) == [0, 1]
    context = Context(ray, actors, Calls(ray), ledger, Session(RunInputs(CONFIG, None), ledger))
    for index in (0, 1):
      inference.watch(context, index)
    ledger.parameters = ray.put("newest")
    assert list(driver._react(context, 0.0)) == []
    for number in range(CONFIG.ray.max_restarts):
      # A handle of another process, as each training worker has one, must not keep the name.
      kept.append(actors.inference_servers[1])
      failed = kept[-1]._actor
      ray.fail(kept[-1])
      (fault,) = driver._react(context, 0.0)
      assert isinstance(fault, Faulted)
      assert fault.counts == {"inference_server": 1}
      assert fault.message == "inference_server_1 failed and was restarted"
      assert actors.inference_servers[1] is ray.named["inference_server_1"]
      restarted = actors.inference_servers[1]._actor
      assert restarted is not failed
      assert restarted.parameters == ["newest"], number
      # The results of `set_parameters` do not show that the server works.
      assert list(driver._react(context, 0.0)) == []
    assert not context.calls, "the run waits for no call of the servers"
    ray.fail(actors.inference_servers[1])
    with pytest.raises(RunError, match=r"^inference_server_1 failed more than ray\.max_restarts=3 times"):
      list(driver._react(context, 0.0))


@pytest.mark.usefixtures("no_actors")
def test_a_name_that_stays_taken_ends_the_run(monkeypatch):
  monkeypatch.setattr(pool, "_NAME_TIMEOUT_S", 0.0)
  with in_process_ray.connected() as ray:
    actors = ActorPool(ray, RunInputs(CONFIG, None))
    monkeypatch.setattr(ray, "kill", ray.fail)  # Ray does not free the name
    kept = actors.inference_servers[0]
    ray.fail(kept)
    with pytest.raises(RunError, match=r"^inference_server_0 cannot be restarted: "):
      actors.restart(ActorId(INFERENCE_SERVER, 0), 0, 0)


# --- the workers' requests ----------------------------------------------------------------------------------


def test_requests_are_asked_again_of_the_server_that_has_the_name_then(monkeypatch):
  ray, pauses = in_process_ray.Ray(failures={("Server", "decide"): [2]}), []
  handles, servers = [], []

  def sleep(seconds):
    pauses.append(seconds)
    if len(pauses) in (2, 5):
      handles.clear()
      gc.collect()  # tracebacks of the fakes' errors
      handles.append(ray.remote(name="inference_server_0")(Server).remote())
      servers.append(handles[0]._actor)

  monkeypatch.setattr(inference_client.time, "sleep", sleep)
  with in_process_ray.connected(ray):
    client = RemoteInference("inference_server_0")
    assert client.decide(1) == 2
    assert len(pauses) == 2, "the server was started late"
    assert client.num_repeated == 0
    # The failed server keeps its name until the driver restarts it, so that requests fail more than once.
    assert client.decide(3) == 6
  assert client.num_repeated == 3
  assert [server.requests for server in servers] == [[1], [3]]


# --- a run --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_in_server_mode_equals_one_in_worker_mode_to_the_bit():
  """In one process, each batch has one request, as in worker mode."""
  states = []
  for mode in ("worker", "server"):
    config = load_config(None, [*TINY, *SERVED, f"acting.mode={mode}", "ray.publish_period_updates=4"])
    with in_process_ray.connected() as ray:
      events = list(driver.run(RunInputs(config, build.env_spec(config))))
    assert ("InferenceServer" in [name for name, _ in ray.made]) == (mode == "server")
    states.append(final_state(events))
  assert_equal_trees(states[0].training, states[1].training)
  for name in ("head", "blocks"):
    assert_equal_trees(*(getattr(state.replay, name) for state in states))


def test_a_packed_request_is_small_and_comes_back_as_it_was():
  frames = np.random.default_rng(0).random((3, 2, 5)) < 0.5
  request = {"frames": frames, "mask": np.ones((1,), bool), "reward": np.arange(3.0), "position": None}
  packed = inference_client.pack(request)
  assert packed["frames"].packed.nbytes == 4
  out = inference_client.unpack(pickle.loads(pickle.dumps(packed)))
  assert out.keys() == request.keys()
  assert out["position"] is None
  for key in ("frames", "mask", "reward"):
    assert out[key].dtype == request[key].dtype
    np.testing.assert_array_equal(out[key], request[key])
