"""A run on a cluster of Ray whose nodes join it and leave it, with and without notice."""

import contextlib
import gc
import os
import shlex
import subprocess
import sys
import time

import pytest
import yaml

from experiments.node_soak.cluster import ENVIRONMENT, LocalCluster
from moozi.actors import cluster
from moozi.io.config import load_config
from tests.docs.pages import ROOT
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


POD = """
import sys

from ray._private import services
from ray.scripts.scripts import main

own = sys.argv.pop(1)
services.find_node_ids = lambda: {own}
main()
"""
"""The program `ray` in a pod: Ray finds the pod's node only, whose id is the first argument."""


def notice() -> list[str]:
  """Returns the arguments of `ray` by which a pod of the manifest announces that it ends, in ten minutes."""
  manifest = yaml.safe_load((ROOT / "examples" / "cluster" / "kuberay.yaml").read_text("utf-8"))
  (group,) = (x for x in manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"] if x["groupName"] == "actors")
  (container,) = group["template"]["spec"]["containers"]
  *_, script = container["lifecycle"]["preStop"]["exec"]["command"]
  command, _, sleep = script.partition("; ")
  ray, *arguments, seconds = shlex.split(command)
  assert (ray, sleep) == ("ray", f"sleep {seconds}")
  return [*arguments, "600"]


def announce_as_a_pod(nodes: LocalCluster, name: str) -> None:
  arguments = [word.replace("$RAY_ADDRESS", nodes.address) for word in notice()]
  subprocess.run(
    [sys.executable, "-c", POD, nodes.nodes[name].node_id, *arguments],
    env=os.environ | ENVIRONMENT | {"RAY_ADDRESS": nodes.address},
    check=True,
    stdout=subprocess.DEVNULL,
  )


def test_workers_come_and_go_with_nodes(tmp_path):
  environment = os.environ | ENVIRONMENT
  with contextlib.closing(LocalCluster(tmp_path / "cluster.log")) as nodes:
    nodes.add("a")
    # The head has room for all actors but the training workers, of which each needs a GPU.
    options = [f"ray.address={nodes.address}", "ray.num_cpus=null", "workers.resources.num_gpus=1"]
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
    nodes.add("b")
    nodes.add("c")
    wait_for_workers(3)
    assert log().count(" joined; ") == 2
    announce_as_a_pod(nodes, "b")
    wait_for_workers(2)
    last = ticks(run)[-1]
    assert last["faults/training_worker"] == last["faults/dropped_steps"] == last["faults/lost_steps"] == 0
    assert log().count("because its node leaves the cluster") == 1
    nodes.remove("c", is_failure=True)
    wait_for(process, lambda: faults(run, "training_worker") >= 1, "the loss of a worker")
    wait_for_workers(1)
    nodes.add("d")
    wait_for_workers(2)
    last = end(process, run)
    # Calls fail until Ray has noticed that the node is gone; how many steps are dropped depends on this.
    assert last["faults/dropped_steps"] % 32 == 0
    assert last["faults/training_worker"] >= 1
