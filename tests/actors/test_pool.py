"""Tests of the actor pool with a fake `ray` module."""

import dataclasses

import pytest

from moozi.actors.pool import ActorPool
from moozi.actors.roles import ROLES, actors_of
from moozi.core.actor_report import (
  INFERENCE_SERVER,
  REANALYZE_WORKER,
  REPLAY,
  SERVER,
  TESTING_WORKER,
  WORKER,
  ActorId,
)
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.session import RunInputs
from moozi.run.state import RunState
from tests.actors import in_process_ray
from tests.tiny_run import TINY


class Nothing:
  """Stands in for an actor that is not called."""

  def __init__(self, *_, **__):
    pass


@pytest.fixture
def only_reanalyze_workers(monkeypatch):
  for name, role in ROLES.items():
    if name != REANALYZE_WORKER:
      monkeypatch.setitem(ROLES, name, dataclasses.replace(role, make=Nothing))


@pytest.mark.usefixtures("only_reanalyze_workers")
def test_reanalyze_workers_draw_other_numbers_after_restarts_and_in_a_resumed_run():
  config = load_config(None, [*TINY, "reanalyze.ratio=0.3"])
  spec, keys = build.env_spec(config), []
  with in_process_ray.connected() as ray:
    for state in (None, RunState(training=None, progress={"env_steps": 64})):
      pool = ActorPool(ray, RunInputs(config, spec, state=state))
      pool.start_others()
      keys.append(random_key(pool))
      for _ in range(2):
        pool.restart(ActorId(REANALYZE_WORKER, 0), 96, 0)
        keys.append(random_key(pool))
  assert len(set(keys[:4])) == 4
  assert keys[4:] == keys[1:3]  # both runs make the same two restarts


@pytest.mark.usefixtures("only_reanalyze_workers")
def test_actors_that_the_memory_monitor_has_killed_are_found():
  """Ray's error does not name them."""
  config = load_config(None, [*TINY, "reanalyze.ratio=0.3"])
  with in_process_ray.connected(in_process_ray.Ray(is_memory_low=True)) as ray:
    pool = ActorPool(ray, RunInputs(config, build.env_spec(config)))
    pool.start_others()
    assert pool.find_failed() == []
    failed = [ActorId(WORKER, 0), ActorId(REPLAY)]
    for actor in failed:
      ray.kill(pool.handles[actor])
    assert pool.find_failed() == failed


@pytest.fixture
def no_actors(monkeypatch):
  for name, role in ROLES.items():
    monkeypatch.setitem(ROLES, name, dataclasses.replace(role, make=Nothing))


@pytest.mark.usefixtures("no_actors")
def test_training_workers_make_room_on_a_smaller_cluster():
  """After a node has failed, the cluster may lack the resources of some actors."""
  ray, workers = in_process_ray.Ray(), [ActorId(WORKER, i) for i in range(4)]
  resources = ["workers.num_workers=4", "workers.resources.num_cpus=1", "ray.learner.num_cpus=1"]
  others = ["ray.replay.num_cpus=0", "evaluation.resources.num_cpus=0"]
  pool = ActorPool(ray, RunInputs(load_config(None, resources + others), None))
  assert list(pool.handles) == [ActorId(SERVER), workers[0], ActorId(REPLAY)]
  pool.start_others()
  assert list(pool.waiting) == workers[1:]
  assert list(pool.take_started()) == [(worker, False, None) for worker in workers[1:]]
  assert list(pool.workers) == [0, 1, 2, 3]
  ray.cluster_resources = lambda: {"CPU": 4.0}
  assert pool.restart(ActorId(REPLAY), 0, 0).message == (
    "replay_buffer failed and was restarted empty: there is no snapshot yet; training_worker_3 was removed "
    "to free its resources"
  )
  ray.cluster_resources = lambda: {"CPU": 3.0}
  assert pool.restart(workers[1], 0, 0).message == (
    "training_worker_1 failed; it is started again when the cluster has room"
  )
  assert list(pool.workers) == [0, 2]
  ray.cluster_resources = lambda: {"CPU": 1.0}
  assert pool.restart(ActorId(SERVER), 0, 7).message == (
    "parameter_server failed and was restarted with the initial parameters, because there is no checkpoint "
    "yet; training_worker_2 was removed to free its resources"
  )
  assert list(pool.workers) == [0]
  assert ray.made[-1][1][2:] == (None, 7)


def random_key(pool):
  return tuple(pool.reanalyze_workers[0]._actor._reanalyzer.get_state()["rng_key"].tolist())


@pytest.mark.usefixtures("no_actors")
@pytest.mark.parametrize("num_shards", [1, 2])
def test_actors_of_which_there_can_be_several_are_spread_over_nodes(num_shards):
  roles = ["acting.mode=server", "reanalyze.ratio=0.5", f"ray.replay_shards={num_shards}"]
  config = load_config(None, ["workers.num_workers=2", *roles])
  pool = ActorPool(in_process_ray.Ray(), RunInputs(config, None))
  assert list(pool.shards) == list(range(num_shards))
  pool.start_others()
  assert list(pool.take_started()) == [(ActorId(WORKER, 1), False, None)]
  spread = {actor for actor, x in pool.handles.items() if x._options.get("scheduling_strategy") == "SPREAD"}
  workers = {ActorId(WORKER, 0), ActorId(WORKER, 1), ActorId(REANALYZE_WORKER, 0)}
  shards = set(actors_of(REPLAY, config)) if num_shards > 1 else set()
  assert spread == workers | {ActorId(INFERENCE_SERVER, 0)} | shards
  assert pool.handles.keys() - spread >= {ActorId(SERVER), ActorId(TESTING_WORKER)}
  if shards:
    message = pool.restart(ActorId(REPLAY, 1), 0, 0).message
    assert message == "replay_buffer_1 failed and was restarted empty: there is no snapshot yet"
    assert pool.handles[ActorId(REPLAY, 1)]._options["scheduling_strategy"] == "SPREAD"
