"""A cluster of Ray in a process of its own, with nodes of this machine that join it and leave it."""

import contextlib
import shlex
import subprocess
import sys

import yaml

from tests.docs.pages import ROOT

ENVIRONMENT = {
  "RAY_AUTH_MODE": "disabled",
  "RAY_USAGE_STATS_ENABLED": "0",
  "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
  "RAY_worker_niceness": "0",
}
# A line on stdin is a command: `add NAME`, `drain NAME` (the notice of the arguments, in a pod, where Ray
# finds only the pod's node), `kill NAME`, `kill_node_of CLASS` (the node of the only actor of a class). The
# head has no accelerators. No node really has any, so JAX uses the CPU on all of them.
CLUSTER = """
import os, subprocess, sys

import psutil
from ray.cluster_utils import Cluster

size = {"object_store_memory": 150 << 20}
head = size | {"num_cpus": 2, "node_ip_address": "127.0.0.1", "include_dashboard": False}
cluster, nodes = Cluster(initialize_head=True, head_node_args=head), {}
pod = "import sys; from ray._private import services; own = sys.argv.pop(1); "
pod += "services.find_node_ids = lambda: {own}; from ray.scripts.scripts import main; main()"

def has(node, kind):
  # A node that was killed has no process of Ray's scheduler any more.
  schedulers = [psutil.Process(x.process.pid) for x in node.all_processes.get("raylet", [])]
  on_node = {child.pid for parent in schedulers for child in parent.children(recursive=True)}
  commands = {x.pid: x.info["cmdline"] or [""] for x in psutil.process_iter(["cmdline"])}
  return any(commands.get(number, [""])[0].startswith(f"ray::{kind}") for number in on_node)

print(cluster.address, flush=True)
for line in sys.stdin:
  command, name = line.split()
  if command == "add":
    address = f"127.0.0.{len(nodes) + 2}"
    nodes[name] = cluster.add_node(num_cpus=1, num_gpus=1, node_ip_address=address, **size)
  elif command == "drain":
    drain = [x.replace("$RAY_ADDRESS", cluster.address) for x in sys.argv[1:]]
    program = [sys.executable, "-c", pod, nodes[name].node_id]
    environment = os.environ | {"RAY_ADDRESS": cluster.address}
    subprocess.run([*program, *drain], check=True, stdout=sys.stderr, env=environment)
  elif command == "kill":
    cluster.remove_node(nodes[name], allow_graceful=False)
  elif command == "kill_node_of":
    (node,) = [node for node in nodes.values() if has(node, name)]
    cluster.remove_node(node, allow_graceful=False)
  print(f"{command} {name}", flush=True)
cluster.shutdown()
"""


def notice() -> list[str]:
  """Returns the arguments of `ray` with which a pod of the manifest says that it ends, in ten minutes."""
  manifest = yaml.safe_load((ROOT / "examples" / "cluster" / "kuberay.yaml").read_text("utf-8"))
  (group,) = (x for x in manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"] if x["groupName"] == "actors")
  (container,) = group["template"]["spec"]["containers"]
  *_, script = container["lifecycle"]["preStop"]["exec"]["command"]
  command, _, sleep = script.partition("; ")
  ray, *arguments, seconds = shlex.split(command)
  assert (ray, sleep) == ("ray", f"sleep {seconds}")
  return [*arguments, "600"]


@contextlib.contextmanager
def cluster_of(environment):
  """Yields a cluster's address, and a function that takes a command, such as `add a`."""
  process = subprocess.Popen(
    [sys.executable, "-c", CLUSTER, *notice()],
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
