"""Sets up a process that runs JAX."""

import ctypes
import os
import sys

from moozi.io import compilation_cache

_KEPT_BYTES = 256 * 2**20
# The numbers of these parameters in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_GLIBC_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def set_up() -> None:
  """Makes this process reuse freed memory, and enables the cache of compiled functions.

  Call this function after the process's number of threads is set, and before JAX compiles. A second call does
  nothing.
  """
  reuse_freed_memory()
  compilation_cache.enable()


def reuse_freed_memory() -> bool:
  """Makes glibc keep up to 256 MiB of freed memory for later allocations.

  By default glibc returns large freed blocks to the system at once. XLA allocates its work space in each
  call, so without this setting each update waits for thousands of page faults (docs/decisions/0024).

  Returns: whether it did. It leaves other C libraries unchanged, and a glibc that the environment configures
    (`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`, `GLIBC_TUNABLES`).
  """
  if not sys.platform.startswith("linux") or any(name in os.environ for name in _GLIBC_VARIABLES):
    return False
  libc = ctypes.CDLL(None)
  if not hasattr(libc, "gnu_get_libc_version"):
    return False
  # With either setting, glibc no longer adapts both thresholds to the program.
  is_set = [libc.mallopt(which, _KEPT_BYTES) == 1 for which in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD)]
  return all(is_set)
