"""Describes this machine: processor, cores, GPUs, memory, ports, and the time that processes have used."""

import contextlib
import os
import platform
import socket
import time
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


def num_gpus() -> int:
  """Returns the number of NVIDIA GPUs by their device files; JAX is not loaded."""
  return sum(1 for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit())


def free_port(host: str) -> int:
  """Returns a port of `host`, an address of this machine, at which nothing listens."""
  with socket.socket() as free:
    free.bind((host, 0))
    port: int = free.getsockname()[1]
    return port


def memory_bytes() -> int:
  """Returns the memory in bytes that this process may use: the machine's, or its container's if less."""
  limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
  # Version 2 of control groups, then version 1. A group without a limit has the text `max` or a huge number.
  for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
    with contextlib.suppress(OSError, ValueError):
      limits.append(int(Path(path).read_text("ascii")))
  return min(limits)


def processor_seconds() -> dict[int, tuple[str, float]]:
  """Returns the command and the processor seconds of this process and its descendants, by process number.

  Without /proc, as on macOS, they are those of this process only.
  """
  found: dict[int, tuple[str, float]] = {}
  parents: dict[int, int] = {}
  tick = os.sysconf("SC_CLK_TCK")
  for path in Path("/proc").glob("[0-9]*"):
    with contextlib.suppress(OSError, ValueError, IndexError):  # a process may end meanwhile
      number = int(path.name)
      # The name, in parentheses, may contain spaces.
      fields = (path / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
      command = (path / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ").strip()
      parents[number] = int(fields[1])
      found[number] = command, (int(fields[11]) + int(fields[12])) / tick
  own = os.getpid()
  if own not in found:
    return {own: (platform.python_implementation(), time.process_time())}
  family = {own}
  while more := {child for child, parent in parents.items() if parent in family} - family:
    family |= more
  return {number: found[number] for number in sorted(family & found.keys())}
