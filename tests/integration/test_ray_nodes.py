"""Tests of a run on a cluster of two local nodes, one of which fails."""

import os
import subprocess
import sys

import pytest

from tests.integration.runs import ENDLESS, start, ticks, wait_for, wait_for_progress, wait_for_start
from tests.integration.test_ray_faults import end

# A cluster of two nodes. The second has another loopback address, so that the driver joins the first.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster

node = {"include_dashboard": False, "object_store_memory": 150 << 20}
cluster = Cluster(initialize_head=True, head_node_args=node | {"num_cpus": 2, "node_ip_address": "127.0.0.1"})
other = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.2", object_store_memory=150 << 20)
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(other, allow_graceful=False)
print("removed", flush=True)
sys.stdin.readline()
cluster.shutdown()
"""
ENVIRONMENT = {
  "RAY_AUTH_MODE": "disabled",
  "RAY_USAGE_STATS_ENABLED": "0",
  "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
  "RAY_worker_niceness": "0",
}


@pytest.mark.slow
def test_node_killed(tmp_path):
  environment = os.environ | ENVIRONMENT
  cluster = subprocess.Popen(
    [sys.executable, "-c", CLUSTER],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
    env=environment,
    start_new_session=True,
  )
  try:
    address = cluster.stdout.readline().strip()
    # The head node has room for one actor of each kind; the second training worker needs the other node.
    options = [f"ray.address={address}", "ray.num_cpus=null", "workers.num_workers=2"]
    process = start(tmp_path, *ENDLESS, *options, env=environment)
    run = tmp_path / "one"
    wait_for_start(process, run)
    cluster.stdin.write("\n")
    cluster.stdin.flush()

    def lost() -> float:
      kinds = ("training_worker", "testing_worker", "replay_buffer", "parameter_server")
      return sum(ticks(run)[-1].get(f"faults/{kind}", 0) for kind in kinds)

    wait_for(process, lambda: lost() >= 1, "the loss of an actor")
    wait_for_progress(process, run, "steps on the other node")
    end(process, run)
    log = (run / "logs" / "driver.log").read_text()
    assert "is started again when the cluster has room" in log or "was removed to free its resources" in log
  finally:
    cluster.communicate("\n\n", timeout=120)
