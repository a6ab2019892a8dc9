"""Tests of runs on a cluster of local nodes, one of which fails."""

import contextlib
import os
import types

import pytest

from experiments.node_soak.cluster import ENVIRONMENT, LocalCluster
from tests.integration.runs import (
  ENDLESS,
  actors,
  faults,
  popen,
  start,
  steps,
  ticks,
  wait_for,
  wait_for_progress,
  wait_for_start,
)
from tests.integration.test_ray_faults import end

pytestmark = pytest.mark.slow


def test_node_killed(tmp_path):
  environment = os.environ | ENVIRONMENT
  with contextlib.closing(LocalCluster(tmp_path / "cluster.log")) as nodes:
    nodes.add("other")
    # The head has room for one actor of each kind; the second training worker needs the other node.
    options = [f"ray.address={nodes.address}", "ray.num_cpus=null"]
    options += ["workers.num_workers=2", "workers.resources.num_cpus=2.5"]
    process = start(tmp_path, *ENDLESS, *options, env=environment)
    run = tmp_path / "one"
    wait_for_start(process, run)
    nodes.remove("other", is_failure=True)

    def lost() -> float:
      kinds = ("training_worker", "testing_worker", "replay_buffer", "parameter_server")
      return sum(ticks(run)[-1].get(f"faults/{kind}", 0) for kind in kinds)

    wait_for(process, lambda: lost() >= 1, "the loss of an actor")
    wait_for_progress(process, run, "steps on the other node")
    end(process, run)
    log = (run / "logs" / "driver.log").read_text()
    assert "is started again when the cluster has room" in log or "was removed to free its resources" in log


def node_of(nodes: LocalCluster, kind: str) -> str:
  """Returns the name of the node of the only actor of a class."""
  schedulers = {name: types.SimpleNamespace(pid=node.scheduler) for name, node in nodes.nodes.items()}
  (name,) = (name for name, scheduler in schedulers.items() if actors(scheduler, kind))
  return name


def test_node_of_a_learners_host_killed(tmp_path):
  """Each host needs an accelerator, and each node but the head has one, so the hosts are on two nodes."""
  environment = os.environ | ENVIRONMENT
  with contextlib.closing(LocalCluster(tmp_path / "cluster.log")) as nodes:
    nodes.add("a")
    nodes.add("b")
    # The only checkpoint before the failure is the first.
    options = [f"ray.address={nodes.address}", "ray.num_cpus=null", "learner.num_hosts=2"]
    options += ["ray.learner.num_cpus=0.5", "ray.learner.num_gpus=1", "checkpoint.period_s=100000"]
    process, run = start(tmp_path, *ENDLESS, *options, env=environment), tmp_path / "one"
    wait_for_start(process, run)
    wait_for_progress(process, run, "updates that no checkpoint has")
    nodes.remove(node_of(nodes, "LearnerHost"), is_failure=True)
    wait_for(process, lambda: faults(run, "parameter_server") >= 1, "the fault")
    # The process of the first host was on another node, and ended itself.
    log = (run / "logs" / "parameter_server.log").read_text()
    assert "because no host can learn alone" in log
    nodes.add("c")
    seen = len(ticks(run))
    wait_for(process, lambda: any("loss/total" in x for x in ticks(run)[seen:]), "an update")
    wait_for_progress(process, run, "updates with the other node")
    last = end(process, run)
    # The learner's host was not started on the node that had failed.
    assert last["faults/parameter_server"] == 1
    assert last["faults/lost_updates"] > 0

    # Only one node has room for a host now.
    nodes.remove("c", is_failure=True)
    options = [f"ray.address={nodes.address}", "learner.num_hosts=1"]
    again = popen("train", "--resume", run, *options, env=environment)
    wait_for(again, lambda: steps(run)[1] > last["learner_steps"], "updates of the resumed run")
    end(again, run)
