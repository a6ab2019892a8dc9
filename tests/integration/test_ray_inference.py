"""Tests of inference servers with Ray: they act as worker mode does, to the bit, and are restarted."""

import numpy as np
import psutil
import pytest

from moozi.actors import cluster
from moozi.actors.pool import ActorPool
from moozi.actors.remote.process import Setup
from moozi.actors.roles import ROLES, actors_of
from moozi.core.actor_report import INFERENCE_SERVER, WORKER, ActorId
from moozi.core.pytree import fields_of
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.session import RunInputs
from tests.acting.parameters import random_parameters
from tests.tiny_run import TINY

pytestmark = pytest.mark.slow


def segments_of(ray, mode, num_servers=1):
  """Returns three segments of each of two workers, in order, and their metrics."""
  settings = (f"acting.mode={mode}", f"acting.num_servers={num_servers}", "workers.num_workers=2")
  config = load_config(None, [*TINY, *settings])
  spec = build.env_spec(config)
  actors = {}
  for role in (INFERENCE_SERVER, WORKER):
    for actor in actors_of(role, config):
      make = ray.remote(**ROLES[role].options(config, actor))(ROLES[role].make)
      arguments = () if role == INFERENCE_SERVER else (actor.index, 0)
      setup = Setup(str(actor), ROLES[role].resources(config))
      actors[actor] = make.remote(config, spec, *arguments, setup=setup)
  parameters = (random_parameters(config, spec), 7)
  for actor, handle in actors.items():
    if actor.role == INFERENCE_SERVER:
      ray.get(handle.set_parameters.remote(parameters))
  workers = [handle for actor, handle in actors.items() if actor.role == WORKER]
  ray.get([worker.warm_up.remote() for worker in workers])
  calls = [
    [worker.run.remote(None if mode == "server" else parameters, 0) for worker in workers] for _ in range(3)
  ]
  found = [ray.get(references) for references in calls]
  for handle in actors.values():
    ray.kill(handle)
  return found


def test_segments_equal_worker_mode():
  config = load_config(None, ["ray.num_cpus=4"])
  with cluster.started(config.ray) as ray:
    apart = segments_of(ray, "server", num_servers=2)
    together = segments_of(ray, "server")
    expected = segments_of(ray, "worker")
  # Each server has one worker.
  for row, wanted_row in zip(apart, expected, strict=True):
    for (segment, acted), (wanted, _) in zip(row, wanted_row, strict=True):
      assert acted.metrics["inference/batch_size"] == 1
      for name, x in fields_of(segment).items():
        np.testing.assert_array_equal(x, fields_of(wanted)[name], name)
  # In batches of two requests the values may differ by rounding.
  sizes = [acted.metrics["inference/batch_size"] for row in together for _, acted in row]
  assert max(sizes) > 1
  for (segment, _), (wanted, _) in zip(together[0], expected[0], strict=True):
    np.testing.assert_allclose(segment.root_value[0], wanted.root_value[0], rtol=1e-4, atol=1e-5)


class Keeper:
  """An actor with a handle of a server, as each training worker is one."""

  def keep(self, name):
    import ray

    self._server = ray.get_actor(name)


def test_a_server_is_restarted_while_another_process_has_its_handle():
  config = load_config(None, [*TINY, "acting.mode=server", "ray.num_cpus=4"])
  name = "inference_server_0"
  with cluster.started(config.ray) as ray:
    actors = ActorPool(ray, RunInputs(config, build.env_spec(config)))
    keeper = ray.remote(num_cpus=0)(Keeper).remote()
    ray.get(keeper.keep.remote(name))
    (server,) = actors.inference_servers.values()
    ray.get(server.__ray_ready__.remote())
    children = psutil.Process().children(recursive=True)
    (process,) = (x for x in children if " ".join(x.cmdline()).startswith("ray::InferenceServer"))
    process.kill()
    with pytest.raises(ray.exceptions.ActorDiedError):
      ray.get(server.__ray_ready__.remote())
    actors.restart(ActorId(INFERENCE_SERVER, 0), 0, 0)
    (restarted,) = actors.inference_servers.values()
    assert ray.get(restarted.__ray_ready__.remote())
    assert ray.get_actor(name)._actor_id == restarted._actor_id != server._actor_id
