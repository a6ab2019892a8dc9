"""A cluster of Ray with nodes on this machine, which join it, leave it with notice, and fail.

The module is also the program of the cluster's process: it starts the head, prints the cluster's address,
reads commands from stdin, and prints a line after each.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from experiments.lib.results import ROOT

ENVIRONMENT = {
  "RAY_AUTH_MODE": "disabled",
  "RAY_USAGE_STATS_ENABLED": "0",
  "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # all processes listen on loopback addresses
  "RAY_worker_niceness": "0",
}
"""Variables of all processes of the cluster and of its runs."""

# Cores are only counted.
_CORES, _STORE_BYTES = 4, 150 << 20
_NOTICE_S = 600
_END_TIMEOUT_S = 120.0


class LocalNode(NamedTuple):
  """A node that was added.

  Attributes:
    scheduler: the process ID of Ray's scheduler on the node, the parent of its actors.
    node_id: Ray's ID of the node.
  """

  scheduler: int
  node_id: str


class LocalCluster:
  """Starts a cluster in a process of its own. Its head has no accelerators.

  Args:
    log: file to which the cluster's messages are appended.

  Attributes:
    process: the parent of the processes of all nodes and of their actors.
    address: for `ray.address`.
    nodes: the nodes that were added and have not ended, by name.
  """

  def __init__(self, log: Path) -> None:
    self._log = log
    with log.open("a") as messages:
      self.process = subprocess.Popen(
        [sys.executable, "-m", "experiments.node_soak.cluster"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=messages,
        text=True,
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        start_new_session=True,
      )
    self.nodes: dict[str, LocalNode] = {}
    self.address = self._answer()

  def add(self, name: str) -> None:
    """Adds a node with an accelerator, which is only counted: no process uses it."""
    scheduler, node_id = self._command("add", name).split()
    self.nodes[name] = LocalNode(int(scheduler), node_id)

  def announce(self, name: str) -> None:
    """Announces that a node will leave, as before a spot instance ends."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--address", self.address]
    command += ["--node-id", self.nodes[name].node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
    command += ["--reason-message", "announced", "--deadline-remaining-seconds", str(_NOTICE_S)]
    with self._log.open("a") as messages:
      subprocess.run(command, check=True, stdout=messages, stderr=messages, env=os.environ | ENVIRONMENT)

  def remove(self, name: str, is_failure: bool) -> None:
    """Ends a node; with `is_failure`, its processes are killed."""
    self._command("kill" if is_failure else "end", name)
    del self.nodes[name]

  def close(self) -> None:
    """Ends all nodes."""
    self.process.communicate(timeout=_END_TIMEOUT_S)

  def _command(self, command: str, name: str) -> str:
    assert self.process.stdin is not None
    self.process.stdin.write(f"{command} {name}\n")
    self.process.stdin.flush()
    return self._answer()

  def _answer(self) -> str:
    assert self.process.stdout is not None
    line = self.process.stdout.readline().strip()
    if not line:
      raise RuntimeError("the cluster's process has ended")
    return line


def serve() -> None:
  """Starts the head, and executes the commands of stdin until its end."""
  from ray.cluster_utils import Cluster

  size = {"num_cpus": _CORES, "object_store_memory": _STORE_BYTES}
  head = size | {"node_ip_address": "127.0.0.1", "include_dashboard": False}
  cluster: Any = Cluster(initialize_head=True, head_node_args=head)
  nodes: dict[str, Any] = {}
  print(cluster.address, flush=True)
  for line in sys.stdin:
    command, name = line.split()
    answer = "done"
    if command == "add":
      # Each node has an address of its own, so that the driver joins the head.
      address = f"127.0.0.{len(nodes) + 2}"
      nodes[name] = cluster.add_node(num_gpus=1, node_ip_address=address, **size)
      (scheduler,) = nodes[name].all_processes["raylet"]
      answer = f"{scheduler.process.pid} {nodes[name].node_id}"
    else:
      cluster.remove_node(nodes[name], allow_graceful=command == "end")
    print(answer, flush=True)
  cluster.shutdown()


if __name__ == "__main__":
  serve()
