"""Tests of the description of the machine."""

import os

from moozi.io.machine import describe_machine, num_cores


def test_cores_that_this_process_may_use(monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 5})
  assert num_cores() == describe_machine()["cores"] == 3


def test_a_system_without_affinity(monkeypatch):
  monkeypatch.delattr(os, "sched_getaffinity")
  monkeypatch.setattr(os, "cpu_count", lambda: 8)
  assert num_cores() == 8
