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


def memory_bytes() -> int:
  """Returns the memory in bytes that this process may use: the machine's, or its group's limit if lower."""
  limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
  # Version 2 of control groups, then version 1. A group without a limit has the text `max` or a huge number.
  for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
    with contextlib.suppress(OSError, ValueError):
      limits.append(int(Path(path).read_text("ascii")))
  return min(limits)
