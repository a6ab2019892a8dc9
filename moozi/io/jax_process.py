"""Sets up a process that runs JAX."""

import contextlib
import ctypes
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from moozi.core.errors import UserError, one_line
from moozi.io import compilation_cache

# glibc before 2.35 refuses a larger M_MMAP_THRESHOLD than 32 MiB.
_THRESHOLDS = (256 * 2**20, 32 * 2**20)
# The numbers of these parameters in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_FLAGS_TIMEOUT_S = 60.0
_GLIBC_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def check() -> None:
  """Starts JAX in this process; further calls have no effect.

  Raises: UserError: JAX cannot start, or XLA refuses the environment variable XLA_FLAGS.
  """
  _check_flags(os.environ.get("XLA_FLAGS", ""))
  import jax

  try:
    jax.devices()
  except Exception as error:
    # JAX raises errors of many classes, some of them without a text.
    reason, value = one_line(error), os.environ.get("JAX_PLATFORMS")
    if value:
      what = f"JAX_PLATFORMS={value}: JAX cannot start ({reason}); unset it, or choose another platform"
    else:
      what = f"JAX cannot start ({reason}); choose another platform with JAX_PLATFORMS"
    raise UserError(f"{what}, such as cpu") from error


@functools.cache
def _check_flags(flags: str) -> None:
  """Raises UserError if XLA refuses `flags`. XLA would end the process, so another process reads them."""
  if not flags:
    return
  command = [sys.executable, "-c", "from jaxlib import xla_client; xla_client.CompileOptions()"]
  try:
    done = subprocess.run(  # noqa: S603 - a list of arguments, no shell
      command, capture_output=True, text=True, errors="replace", timeout=_FLAGS_TIMEOUT_S, check=False
    )
  except (OSError, subprocess.TimeoutExpired):
    return
  # A line of the log: letter, date, time, process, file:line, text.
  if done.returncode and (found := re.search(r"^[EF]\d{4} .*?\.cc:\d+\] (.*)$", done.stderr, re.MULTILINE)):
    raise UserError(f"XLA_FLAGS={one_line(flags)}: {one_line(found[1])}; correct or unset XLA_FLAGS")


def set_up() -> None:
  """Makes this process reuse freed memory, and enables the cache of compiled functions.

  Call this function after the process's number of threads is set, and before JAX compiles. Further calls have
  no effect.
  """
  reuse_freed_memory()
  compilation_cache.enable()


class HostOf(NamedTuple):
  """The place of a process among those whose devices JAX uses together.

  Attributes:
    address: host:port at which process 0 listens for the others.
    own: name or address of this process's host, at which gloo listens.
    number: 0 to `num_hosts` - 1.
    num_hosts: number of processes, one on each host.
    heartbeat_timeout_s: seconds without a heartbeat of a process after which JAX ends the others.
  """

  address: str
  own: str
  number: int
  num_hosts: int
  heartbeat_timeout_s: int = 100


def join(host: HostOf) -> None:
  """Makes the devices of several processes those of one JAX; returns when all processes have called it.

  Call it before JAX's first computation, and do not call `set_up`: with the cache, a process waits for
  another one that compiles the same function, and a compilation may itself wait for all processes.

  Raises: RuntimeError: JAX was used before, or the other processes do not call it within five minutes.
  """
  reuse_freed_memory()
  import jax
  from jax._src import distributed, xla_bridge
  from jax._src.lib import _jax

  # By default, gloo listens at the address of the machine's name, at which other machines may not reach it.
  # JAX has no public function that sets it; `tests/learning/test_hosts.py` checks that this one still does.
  def cpu() -> Any:
    client = distributed.global_state.client
    return xla_bridge.make_cpu_client(
      _jax.make_gloo_tcp_collectives(distributed_client=client, hostname=host.own)
    )

  xla_bridge.register_backend_factory("cpu", cpu, fail_quietly=False)
  # JAX's own cache, which the environment variable JAX_COMPILATION_CACHE_DIR enables. It has the entries of
  # one process: the others would compile while this one does not, and XLA may wait for all.
  jax.config.update("jax_enable_compilation_cache", False)
  # It would handle SIGTERM, by which Ray ends a process.
  jax.config.update("jax_enable_preemption_service", False)
  jax.distributed.initialize(
    host.address,
    host.num_hosts,
    host.number,
    cluster_detection_method="deactivate",
    coordinator_bind_address=host.address,
    heartbeat_timeout_seconds=host.heartbeat_timeout_s,
  )


def use_cpu_only() -> None:
  """Makes JAX use the CPU in this process; processes that it starts are not affected.

  By default JAX reserves three quarters of a GPU's memory at its first allocation, which a process whose
  actors compute on the GPU must not do. A call after JAX's first computation has no effect.
  """
  import jax  # late: actors import this module before `process.prepare` sets the variables that JAX reads

  jax.config.update("jax_platforms", "cpu")


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
  """Places new arrays on the CPU in the block, if JAX has one: a driver must not allocate GPU memory."""
  import jax

  cpu = None
  with contextlib.suppress(RuntimeError):
    cpu = jax.local_devices(backend="cpu")[0]
  with jax.default_device(cpu):
    yield


def reuse_freed_memory() -> bool:
  """Makes glibc keep up to 256 MiB of freed memory at the top of its heap for later allocations.

  By default glibc returns large freed blocks to the system at once. XLA allocates its work space in each
  call, so an update of MinAtar Breakout had 4,455 page faults without this setting (docs/decisions/0024).

  Returns: whether the settings were made. They are not made with another C library, or if one of the
    environment variables `MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_` and `GLIBC_TUNABLES` is set.
  """
  if not sys.platform.startswith("linux") or any(name in os.environ for name in _GLIBC_VARIABLES):
    return False
  libc = ctypes.CDLL(None)
  if not hasattr(libc, "gnu_get_libc_version"):
    return False
  # Either setting disables glibc's dynamic thresholds, so the second one follows only if the first is made.
  for size in _THRESHOLDS:
    if libc.mallopt(_M_MMAP_THRESHOLD, size) == 1:
      return bool(libc.mallopt(_M_TRIM_THRESHOLD, _THRESHOLDS[0]) == 1)
  return False
