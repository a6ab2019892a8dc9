"""Tests of a run on a cluster of two local nodes, one of which fails."""

import os

import pytest

from tests.integration.local_cluster import ENVIRONMENT, cluster_of
from tests.integration.runs import ENDLESS, start, ticks, wait_for, wait_for_progress, wait_for_start
from tests.integration.test_ray_faults import end


@pytest.mark.slow
def test_node_killed(tmp_path):
  environment = os.environ | ENVIRONMENT
  with cluster_of(environment) as (address, command):
    command("add other")
    # The head node has room for one actor of each kind; the second training worker needs the other node.
    options = [f"ray.address={address}", "ray.num_cpus=null", "workers.num_workers=2"]
    process = start(tmp_path, *ENDLESS, *options, env=environment)
    run = tmp_path / "one"
    wait_for_start(process, run)
    command("kill other")

    def lost() -> float:
      kinds = ("training_worker", "testing_worker", "replay_buffer", "parameter_server")
      return sum(ticks(run)[-1].get(f"faults/{kind}", 0) for kind in kinds)

    wait_for(process, lambda: lost() >= 1, "the loss of an actor")
    wait_for_progress(process, run, "steps on the other node")
    end(process, run)
    log = (run / "logs" / "driver.log").read_text()
    assert "is started again when the cluster has room" in log or "was removed to free its resources" in log
