"""A run on a cluster of Ray whose nodes join it and leave it, with and without notice."""

import contextlib
import os
import subprocess
import sys

import pytest

from tests.integration.runs import ENDLESS, faults, start, ticks, wait_for, wait_for_progress, wait_for_start
from tests.integration.test_ray_faults import end
from tests.integration.test_ray_nodes import ENVIRONMENT

# A line on stdin is a command: `add NAME`, `drain NAME` (a notice, ten minutes before the end), `kill NAME`.
# The head has no accelerators. No node really has any, so JAX uses the CPU on all of them.
CLUSTER = """
import subprocess, sys
from ray.cluster_utils import Cluster

size = {"object_store_memory": 150 << 20}
head = size | {"num_cpus": 2, "node_ip_address": "127.0.0.1", "include_dashboard": False}
cluster, nodes = Cluster(initialize_head=True, head_node_args=head), {}
drain = "drain-node --reason DRAIN_NODE_REASON_PREEMPTION --reason-message test"
drain += " --deadline-remaining-seconds 600"
print(cluster.address, flush=True)
for line in sys.stdin:
  command, name = line.split()
  if command == "add":
    address = f"127.0.0.{len(nodes) + 2}"
    nodes[name] = cluster.add_node(num_cpus=1, num_gpus=1, node_ip_address=address, **size)
  elif command == "drain":
    node = ["--address", cluster.address, "--node-id", nodes[name].node_id]
    program = [sys.executable, "-m", "ray.scripts.scripts"]
    subprocess.run([*program, *drain.split(), *node], check=True, stdout=sys.stderr)
  elif command == "kill":
    cluster.remove_node(nodes[name], allow_graceful=False)
  print(f"{command} {name}", flush=True)
cluster.shutdown()
"""


@contextlib.contextmanager
def cluster_of(environment):
  """Yields a cluster's address, and a function that takes a command, such as `add a`."""
  process = subprocess.Popen(
    [sys.executable, "-c", CLUSTER],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
    env=environment,
    start_new_session=True,
  )

  def answer() -> str:
    return process.stdout.readline().strip()

  def command(text: str) -> None:
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
    assert answer() == text

  try:
    yield answer(), command
  finally:
    process.communicate(timeout=120)


@pytest.mark.slow
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
