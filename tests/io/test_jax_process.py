"""Tests of the set-up of processes that run JAX."""

import json
import os
import platform
import subprocess
import sys

import pytest

from moozi.io import compilation_cache, jax_process

# Allocates, fills and frees 64 MiB twice; prints the page faults of the second time.
_ALLOCATE = """
import ctypes, json, resource, sys
from moozi.io.jax_process import reuse_freed_memory
is_set = reuse_freed_memory() if sys.argv[1] == "set" else None
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for _ in range(2):
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  block = libc.malloc(2**26)
  ctypes.memset(block, 1, 2**26)
  libc.free(block)
print(json.dumps([is_set, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]))
"""
_MALLOC = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


def _allocate(how: str, **variables: str) -> tuple[bool | None, int]:
  env = {name: value for name, value in os.environ.items() if name not in _MALLOC} | variables
  done = subprocess.run(
    [sys.executable, "-c", _ALLOCATE, how], env=env, capture_output=True, text=True, check=True
  )
  is_set, faults = json.loads(done.stdout)
  return is_set, faults


@needs_glibc
def test_freed_memory_is_reused() -> None:
  """A huge page is 2 MiB: 64 MiB are at least 32 faults."""
  assert _allocate("default")[1] >= 32
  is_set, faults = _allocate("set")
  assert is_set
  assert faults < 8


@needs_glibc
@pytest.mark.parametrize("name", _MALLOC)
def test_the_environment_takes_precedence(name: str) -> None:
  is_set, faults = _allocate("set", **{name: "" if name == "GLIBC_TUNABLES" else "131072"})
  assert not is_set
  assert faults >= 32


class FakeLibrary:
  """A C library that accepts M_MMAP_THRESHOLD (-3) up to a size, and records all accepted settings."""

  def __init__(self, largest: int, is_glibc: bool = True) -> None:
    self.largest, self.settings = largest, {}
    if is_glibc:
      self.gnu_get_libc_version = lambda: b"2.31"

  def mallopt(self, which: int, value: int) -> int:
    if which == -3 and value > self.largest:
      return 0
    self.settings[which] = value
    return 1


@pytest.mark.parametrize(
  ("library", "system", "settings"),
  [
    (FakeLibrary(2**40), "linux", {-3: 2**28, -1: 2**28}),
    (FakeLibrary(2**25), "linux", {-3: 2**25, -1: 2**28}),  # glibc before 2.35
    (FakeLibrary(0), "linux", {}),
    (FakeLibrary(2**40, is_glibc=False), "linux", {}),
    (FakeLibrary(2**40), "darwin", {}),
  ],
)
def test_settings_by_library(monkeypatch, library, system, settings) -> None:
  for name in _MALLOC:
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(sys, "platform", system)
  monkeypatch.setattr(jax_process.ctypes, "CDLL", lambda name: library)
  assert jax_process.reuse_freed_memory() == bool(settings)
  assert library.settings == settings


def test_set_up_does_both(monkeypatch: pytest.MonkeyPatch) -> None:
  called: list[str] = []
  monkeypatch.setattr(jax_process, "reuse_freed_memory", lambda: called.append("memory"))
  monkeypatch.setattr(compilation_cache, "enable", lambda: called.append("cache"))
  jax_process.set_up()
  assert called == ["memory", "cache"]
