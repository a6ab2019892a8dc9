"""Describes the machine of a run, for its summary and its card."""

import contextlib
import os
import platform
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
  """Returns the processor model, the number of cores that this process may use, and the operating system."""
  model = platform.processor() or platform.machine()
  with contextlib.suppress(OSError):
    lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = names[0] if names else model
  return {"cpu": model, "cores": num_cores(), "system": platform.system()}


def num_cores() -> int:
  """Returns the number of cores that this process may use."""
  # macOS has no affinity.
  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
