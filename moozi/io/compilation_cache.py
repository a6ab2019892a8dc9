"""Stores compiled functions in the user's cache folder, for other processes and later runs.

JAX's persistent cache computes the keys and serializes the functions; `Entries` stores them. JAX's own
storage is not used: it writes entries in place, and keeps an entry that a killed process has left truncated.

The folder is `$XDG_CACHE_HOME/moozi/compiled` (`~/.cache/moozi/compiled`, on macOS
`~/Library/Caches/moozi/compiled`). The environment variable `MOOZI_COMPILATION_CACHE` sets another folder, or
disables the cache with `off`. The folder is not a configuration key: entries are machine code, and a run
directory from another person must not choose them. If JAX's own cache folder is configured, this module does
nothing.

Compiled functions depend on JAX's version, on the processor and on the number of threads. Each combination
has its own subfolder.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from moozi.core.errors import reason_of
from moozi.io.atomic_write import atomic_path
from moozi.io.machine import num_cores

VARIABLE = "MOOZI_COMPILATION_CACHE"
MAX_BYTES = 512 * 2**20
_SUFFIX = ".compiled"
_LOCKS = "locks"
_MAGIC = b"moozi-compiled-1"
_HEADER_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
# The lines of /proc/cpuinfo that determine the compiled code, on x86, ARM and RISC-V.
_CPU_FIELDS = (
  *("vendor_id", "model name", "cpu family", "model", "stepping", "flags"),
  *("CPU implementer", "CPU variant", "CPU part", "CPU revision", "Features", "isa", "uarch"),
)
# Maximum time in seconds to wait for another process that compiles the same function.
_WAIT_S = 120.0
_log = logging.getLogger("moozi.compilation_cache")


def enable() -> Path | None:
  """Makes JAX store compiled functions; a second call does nothing.

  Call this function after the process's number of threads is set, and before JAX compiles. If the cache
  cannot be used, logs a warning, and JAX compiles without a cache.

  Returns: the folder of this process's entries; None if the cache is disabled, unusable or configured in JAX.
  """
  try:
    root = cache_root()
    if root is None:
      return None
    import jax
    from jax._src import compilation_cache

    if jax.config.values["jax_compilation_cache_dir"] is not None:
      return None
    folder = root / f"jax-{jax.__version__}-{_machine()}"
    make_private(root)
    make_private(folder)
    entries = Entries(folder)
    # JAX has no public function that sets the storage; `tests/io/test_compilation_cache.py` checks that this
    # private one still does.
    if not hasattr(compilation_cache, "get_file_cache"):
      raise OSError(f"JAX {jax.__version__} has another interface")
    compilation_cache.get_file_cache = cast(Any, lambda path: (entries, path))
    jax.monitoring.register_event_duration_secs_listener(entries.on_duration)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_compilation_cache_dir", str(folder))
  except (OSError, RuntimeError) as error:
    _log.warning("compiled functions are not kept: %s", error)
    return None
  return folder


def cache_root() -> Path | None:
  """Returns the folder of all entries, which may not exist; None if the cache is disabled.

  Raises: RuntimeError: the user has no home folder.
  """
  value = os.environ.get(VARIABLE, "")
  if value.lower() in ("off", "0", "none"):
    return None
  if value:
    return Path(value).expanduser().absolute()
  base = Path(os.environ.get("XDG_CACHE_HOME", ""))
  if not base.is_absolute():  # the XDG specification says to ignore relative paths
    base = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
  return base / "moozi" / "compiled"


def make_private(folder: Path) -> None:
  """Creates a folder that only its owner can read and write, or checks an existing one.

  Raises: OSError: the folder cannot be created. PermissionError: another user could write entries into it, or
    it is a link.
  """
  missing = [path for path in (folder, *folder.parents) if not path.exists()]
  for path in reversed(missing):
    path.mkdir(mode=0o700, exist_ok=True)
  for path in (folder, *folder.parents):
    status = path.stat()
    is_sticky = path != folder and status.st_mode & stat.S_ISVTX
    if status.st_mode & stat.S_IWOTH and not is_sticky:
      raise PermissionError(f"{path}: every user can write there; must be writable by its owner only")
  status = os.lstat(folder)
  if not stat.S_ISDIR(status.st_mode):
    raise PermissionError(f"{folder}: must be a folder, not a link")
  if status.st_uid != os.geteuid():
    raise PermissionError(f"{folder}: belongs to user {status.st_uid}; must belong to user {os.geteuid()}")
  if status.st_mode & stat.S_IWGRP:
    raise PermissionError(f"{folder}: its group can write there; must be writable by its owner only")


def _machine() -> str:
  """Returns a digest of the processor and the number of threads for which XLA compiles."""
  lines = {f"{sys.platform} {platform.machine()} threads {_num_threads()}"}
  try:
    text = Path("/proc/cpuinfo").read_text()
    lines |= {line for line in text.splitlines() if line.partition(":")[0].strip() in _CPU_FIELDS}
  except OSError:
    lines.add(platform.node())  # without /proc/cpuinfo, entries are shared only within this host
  return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def _num_threads() -> str:
  """Returns XLA's number of threads: NPROC, which `actors.remote.process` sets, or the number of cores."""
  return os.environ.get("NPROC") or str(num_cores())


class Entries:
  """The entries of one folder, by key. JAX calls `get` before it compiles a function, and `put` afterwards.

  Entries are written atomically and have a checksum. A damaged entry is removed, and its function is
  compiled again. If several processes need the same function at once, one compiles it and the others
  wait, for at most 120 s.

  Args:
    folder: an existing folder.
    max_bytes: limit of the entries' size in this folder and the folders beside it, which are for other
      versions of JAX, machines or numbers of threads. The constructor, and each new sixteenth of the limit,
      removes the least recently used entries until the others fit.
  """

  def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
    self._folder, self._max_bytes = folder, max_bytes
    # The file stays open: POSIX releases all of a process's locks when it closes any descriptor of the file.
    self._locks = os.open(folder / _LOCKS, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    self._held = threading.local()
    self._num_new_bytes = 0
    self._evict()

  def get(self, key: str) -> bytes | None:
    """Returns the entry of `key`; None if the caller must compile the function."""
    self.release()
    value = self._read(key)
    if value is None and self._lock(key):
      value = self._read(key)
    if value is not None:
      self.release()
    return value

  def put(self, key: str, value: bytes) -> None:
    """Adds an entry. Raises OSError, which JAX reports as a warning."""
    try:
      with atomic_path(self._path(key), make_parents=False) as temporary:
        temporary.write_bytes(_MAGIC + hashlib.sha256(value).digest() + value)
    finally:
      self.release()
    self._num_new_bytes += len(value)
    if self._num_new_bytes > self._max_bytes // 16:
      self._evict()

  def on_duration(self, event: str, duration_secs: float, **_: str | int) -> None:
    """Releases the lock when JAX has compiled a function.

    JAX does not call `put` for some functions, such as those that call back into Python.
    """
    if event.endswith("backend_compile_duration"):
      self.release()

  def release(self) -> None:
    """Releases the lock on the function for which this thread's `get` returned None."""
    at, self._held.at = getattr(self._held, "at", None), None
    if at is not None:
      with contextlib.suppress(OSError):
        fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, at)

  def _path(self, key: str) -> Path:
    return self._folder / f"{key}{_SUFFIX}"

  def _read(self, key: str) -> bytes | None:
    path = self._path(key)
    try:
      data = path.read_bytes()
      os.utime(path)
    except FileNotFoundError:
      return None
    except OSError as error:
      _log.warning("%s: cannot be read (%s); compiling again", path, reason_of(error))
      return None
    value = data[_HEADER_BYTES:]
    if data[:_HEADER_BYTES] == _MAGIC + hashlib.sha256(value).digest():
      return value
    _log.warning("%s: damaged; compiling again", path)
    path.unlink(missing_ok=True)
    return None

  def _lock(self, key: str) -> bool:
    """Takes the lock of `key`; returns whether another process held it.

    After `_WAIT_S`, or on a file system without locks, continues without the lock. Two processes may then
    compile the same function; the second entry replaces the first.
    """
    at = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")
    end_s, has_waited = time.monotonic() + _WAIT_S, False
    while time.monotonic() < end_s:
      try:
        fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
      except (BlockingIOError, PermissionError):
        has_waited = True
        time.sleep(0.02)
      except OSError:
        break
      else:
        self._held.at = at
        break
    return has_waited

  def _evict(self) -> None:
    """Removes the least recently used entries until the others fit in `max_bytes`."""
    self._num_new_bytes = 0
    found = sorted(_files(self._folder.parent), reverse=True)
    total = 0
    for _, size, path in found:
      total += size
      if total > self._max_bytes:
        with contextlib.suppress(OSError):
          path.unlink()


def _files(root: Path) -> Iterator[tuple[float, int, Path]]:
  """Yields (time of the last use, bytes, path) of the entries in all folders of `root`."""
  for path in root.glob(f"*/*{_SUFFIX}*"):
    with contextlib.suppress(OSError):
      status = path.stat()
      yield status.st_mtime, status.st_size, path
