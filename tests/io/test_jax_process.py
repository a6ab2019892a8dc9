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
@pytest.mark.parametrize("name", _MALLOC[:2])
def test_the_environment_takes_precedence(name: str) -> None:
  is_set, faults = _allocate("set", **{name: "131072"})
  assert not is_set
  assert faults >= 32


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(sys, "platform", "darwin")
  assert not jax_process.reuse_freed_memory()


def test_set_up_does_both(monkeypatch: pytest.MonkeyPatch) -> None:
  called: list[str] = []
  monkeypatch.setattr(jax_process, "reuse_freed_memory", lambda: called.append("memory"))
  monkeypatch.setattr(compilation_cache, "enable", lambda: called.append("cache"))
  jax_process.set_up()
  assert called == ["memory", "cache"]
