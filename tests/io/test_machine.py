"""Tests of the description of the machine, and of its free ports."""

import os
import socket
import subprocess
import sys

from moozi.io.machine import describe_machine, free_port, num_cores, processor_seconds


def test_cores_that_this_process_may_use(monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 5})
  assert num_cores() == describe_machine()["cores"] == 3


def test_a_system_without_affinity(monkeypatch):
  monkeypatch.delattr(os, "sched_getaffinity")
  monkeypatch.setattr(os, "cpu_count", lambda: 8)
  assert num_cores() == 8


def test_nothing_listens_at_a_free_port():
  with socket.create_server(("127.0.0.1", free_port("127.0.0.1"))):
    pass


def test_processor_seconds_are_of_this_process_and_its_descendants():
  """The child of a child counts; the parent of this process does not."""
  code = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"
  with subprocess.Popen(
    [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as child:
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    found = processor_seconds()
    os.kill(grandchild, 9)
    child.communicate("")
  assert {os.getpid(), child.pid, grandchild} <= found.keys()
  assert found[grandchild][0] == "sleep 60"
  assert found[os.getpid()][1] > 0
  assert os.getppid() not in found
