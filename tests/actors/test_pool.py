"""Tests of the actor pool with a fake `ray` module."""

import pytest

from moozi.actors import pool as pool_module
from moozi.actors.pool import ActorPool
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
  for name in ("ParameterServer", "ReplayActor", "TrainingWorker", "TestingWorker"):
    monkeypatch.setattr(pool_module, name, Nothing)


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
        pool.restart("reanalyze_worker_0", 96, 0)
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
    for name in ("replay_buffer", "training_worker_0"):
      ray.kill(pool.handles()[name])
    assert pool.find_failed() == ["replay_buffer", "training_worker_0"]


def random_key(pool):
  return tuple(pool.reanalyze_workers[0]._actor._reanalyzer.get_state()["rng_key"].tolist())
