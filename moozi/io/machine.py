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
  has_affinity = hasattr(os, "sched_getaffinity")
  cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 0
  return {"cpu": model, "cores": cores, "system": platform.system()}
