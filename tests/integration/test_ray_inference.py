"""Tests of inference servers with Ray: what their workers act equals worker mode to the bit."""

import numpy as np
import pytest

from moozi.actors import cluster
from moozi.actors.remote.process import Setup
from moozi.actors.roles import ROLES, actors_of
from moozi.core.actor_report import INFERENCE_SERVER, WORKER
from moozi.core.pytree import fields_of
from moozi.io.config import load_config
from moozi.run import build
from tests.acting.parameters import random_parameters
from tests.tiny_run import TINY

pytestmark = pytest.mark.slow


def segments_of(ray, mode, num_workers):
  """Returns three segments of each worker, in order, and their metrics."""
  config = load_config(None, [*TINY, f"acting.mode={mode}", f"workers.num_workers={num_workers}"])
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
    alone = segments_of(ray, "server", 1)
    together = segments_of(ray, "server", 2)
    expected = segments_of(ray, "worker", 2)
  for ((segment, acted),), ((wanted, _), _) in zip(alone, expected, strict=True):
    assert acted.metrics["inference/batch_size"] == 1
    for name, x in fields_of(segment).items():
      np.testing.assert_array_equal(x, fields_of(wanted)[name], name)
  # In batches of two requests the values may differ by rounding.
  sizes = [acted.metrics["inference/batch_size"] for row in together for _, acted in row]
  assert max(sizes) > 1
  for (segment, _), (wanted, _) in zip(together[0], expected[0], strict=True):
    np.testing.assert_allclose(segment.root_value[0], wanted.root_value[0], rtol=1e-4, atol=1e-5)
