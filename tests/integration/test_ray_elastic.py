"""A run on a cluster of Ray whose nodes join it and leave it, with and without notice."""

import gc
import os
import time

import pytest

from moozi.actors import cluster
from moozi.io.config import load_config
from tests.integration.local_cluster import ENVIRONMENT, cluster_of
from tests.integration.runs import ENDLESS, faults, start, ticks, wait_for, wait_for_progress, wait_for_start
from tests.integration.test_ray_faults import end

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # Ray's own
def test_what_ray_knows_about_an_actor():
  """From private functions of Ray."""

  class Idle:
    pass

  with cluster.started(load_config(None, ["ray.num_cpus=1"]).ray) as ray:
    actor = ray.remote(num_cpus=0)(Idle).remote()
    ray.get(actor.__ray_ready__.remote())
    (node,) = ray.nodes()
    assert cluster.node_of(ray, actor) == node["NodeID"]
    assert not cluster.has_ended(ray, actor)
    ray.kill(actor)
    end_s = time.monotonic() + 60
    while not cluster.has_ended(ray, actor):
      assert time.monotonic() < end_s
      time.sleep(0.05)
  gc.collect()


def test_workers_come_and_go_with_nodes(tmp_path):
  environment = os.environ | ENVIRONMENT
  with cluster_of(environment) as (address, command):
    command("add a")
    # The head has room for all actors but the training workers, of which each needs a GPU.
    options = [f"ray.address={address}", "ray.num_cpus=null", "workers.resources.num_gpus=1"]
    numbers = ["workers.num_workers=2", "ray.min_workers=1", "ray.max_workers=3"]
    process, run = start(tmp_path, *ENDLESS, *options, *numbers, env=environment), tmp_path / "one"

    def log() -> str:
      return (run / "logs" / "driver.log").read_text()

    def wait_for_workers(number: int) -> None:
      def has() -> bool:
        return ticks(run)[-1].get("system/training_workers") == number

      wait_for(process, has, f"{number} training workers")
      wait_for_progress(process, run, f"steps with {number} training workers")

    wait_for_start(process, run)
    assert log().count("the cluster has room for 1 of 2 training workers") == 1
    wait_for_workers(1)
    command("add b")
    command("add c")
    wait_for_workers(3)
    assert log().count(" joined; ") == 2
    command("drain b")
    wait_for_workers(2)
    last = ticks(run)[-1]
    assert last["faults/training_worker"] == last["faults/dropped_steps"] == last["faults/lost_steps"] == 0
    assert log().count("because its node leaves the cluster") == 1
    command("kill c")
    wait_for(process, lambda: faults(run, "training_worker") >= 1, "the loss of a worker")
    wait_for_workers(1)
    command("add d")
    wait_for_workers(2)
    last = end(process, run)
    # Calls fail until Ray has noticed that the node is gone; how many steps are dropped depends on this.
    assert last["faults/dropped_steps"] % 32 == 0
    assert last["faults/training_worker"] >= 1
