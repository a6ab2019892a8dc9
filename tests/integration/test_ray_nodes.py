"""A cluster of two nodes on this machine, of which one dies under a run."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.test_ray_faults import ENDLESS, steps, wait_for_progress, wait_for_start
from tests.integration.test_ray_run import answers, finish, start, ticks, wait_for

ENVIRONMENT = {
  "RAY_AUTH_MODE": "disabled",
  "RAY_USAGE_STATS_ENABLED": "0",
  "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


def ray_start(*options: str) -> subprocess.Popen:
  return subprocess.Popen(
    [
      str(Path(sys.executable).with_name("ray")),
      "start",
      "--node-ip-address=127.0.0.1",
      "--block",
      *options,
    ],
    env=os.environ | ENVIRONMENT,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    start_new_session=True,
  )


def status(port: int) -> str:
  """What Ray tells of the cluster; empty while it does not answer."""
  command = [str(Path(sys.executable).with_name("ray")), "status", f"--address=127.0.0.1:{port}"]
  done = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False)
  return done.stdout


def kill_tree(process: subprocess.Popen) -> None:
  """A node that loses its power: all its processes end at once."""
  for child in psutil.Process(process.pid).children(recursive=True):
    child.kill()
  process.kill()
  process.wait(timeout=60)


@pytest.mark.slow
def test_a_node_killed(tmp_path):
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  with tempfile.TemporaryDirectory(prefix="mz", ignore_cleanup_errors=True) as ray_folder:
    # What one actor of each kind needs fits on the head; the second training worker needs the other node.
    head = ray_start(
      "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false", f"--temp-dir={ray_folder}"
    )
    node = None
    try:
      wait_until(lambda: answers(port), "the head")
      node = ray_start(f"--address=127.0.0.1:{port}", "--num-cpus=1")
      wait_until(lambda: "/3.0 CPU" in status(port), "the second node")
      options = [f"ray.address=127.0.0.1:{port}", "ray.num_cpus=null", "workers.num_workers=2"]
      process = start(tmp_path, *ENDLESS, *options, env=os.environ | ENVIRONMENT)
      run = tmp_path / "one"
      wait_for_start(process, run)
      kill_tree(node)

      def lost() -> float:
        last = ticks(run)[-1]
        kinds = ("training_worker", "testing_worker", "replay_buffer", "parameter_server")
        return sum(last.get(f"faults/{kind}", 0) for kind in kinds)

      wait_for(process, lambda: lost() >= 1, "the loss of an actor")
      wait_for_progress(process, run, "steps on the node that is left")
      os.killpg(process.pid, signal.SIGTERM)
      _, err = finish(process, 180)
      assert process.returncode == 0, err
      summary = json.loads((run / "summary.json").read_text())
      assert summary["env_steps"] == steps(run)[0] > 0
      log = (run / "logs" / "driver.log").read_text()
      assert "has no room for it any more" in log or "made room for it" in log
    finally:
      for cluster in (node, head):
        if cluster is not None and cluster.poll() is None:
          os.killpg(cluster.pid, signal.SIGTERM)
          cluster.wait(timeout=60)


def wait_until(condition, what: str, timeout_s: float = 120.0) -> None:
  end = time.monotonic() + timeout_s
  while not condition():
    assert time.monotonic() < end, f"waited in vain for {what}"
    time.sleep(0.3)
