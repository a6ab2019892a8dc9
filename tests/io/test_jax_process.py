"""Tests of the set-up of processes that run JAX."""

import json
import os
import platform
import re
import subprocess
import sys

import jax
import pytest

from moozi.core.errors import UserError
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


# --- the start of JAX ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ("error", "text"),
  [
    (
      RuntimeError("Unable to initialize backend 'tpu':\n no libtpu"),
      "Unable to initialize backend 'tpu': no",
    ),
    (AssertionError(), "AssertionError"),  # JAX_PLATFORMS=cuda without its plug-in
  ],
)
def test_platform_that_cannot_start_is_one_line_with_the_variable(monkeypatch, error, text) -> None:
  def devices() -> None:
    raise error

  monkeypatch.setattr(jax, "devices", devices)
  monkeypatch.setenv("JAX_PLATFORMS", "tpu")
  with pytest.raises(
    UserError, match=rf"^JAX_PLATFORMS=tpu: JAX cannot start \({re.escape(text)}.*such as cpu$"
  ):
    jax_process.check()
  monkeypatch.delenv("JAX_PLATFORMS")
  with pytest.raises(UserError, match=r"^JAX cannot start \(.*with JAX_PLATFORMS, such as cpu$"):
    jax_process.check()


@pytest.mark.parametrize(
  ("flags", "text"),
  [
    ("--xla_no_such=1", "Unknown flag in XLA_FLAGS: --xla_no_such=1"),
    ("no file", 'Could not open file "no file"'),
    ("--xla_cpu_enable_fast_math=maybe", "Couldn't interpret value maybe for flag xla_cpu_enable_fast_math"),
  ],
)
def test_flags_that_would_end_the_process_are_refused(monkeypatch, flags, text) -> None:
  monkeypatch.setenv("XLA_FLAGS", flags)
  with pytest.raises(UserError, match="^" + re.escape(f"XLA_FLAGS={flags}: {text}")):
    jax_process.check()


def test_valid_flags_are_read_once(monkeypatch) -> None:
  called: list[object] = []
  run = subprocess.run
  monkeypatch.setattr(jax_process.subprocess, "run", lambda *a, **k: called.append(a) or run(*a, **k))
  monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
  jax_process.check()
  jax_process.check()
  assert len(called) == 1
  monkeypatch.delenv("XLA_FLAGS")
  jax_process.check()
  assert len(called) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
  ("variable", "value"),
  [
    ("JAX_PLATFORMS", "tpu"),
    ("JAX_PLATFORMS", "nosuch"),
    ("XLA_FLAGS", "--xla_no_such=1"),
    ("JAX_ENABLE_X64", "?"),
  ],
)
@pytest.mark.parametrize("command", ["train tiny/catch run.dir=runs runtime=local", "evaluate zoo:catch"])
def test_jax_that_cannot_start_leaves_one_line_and_no_folder(tmp_path, variable, value, command) -> None:
  done = subprocess.run(
    [sys.executable, "-m", "moozi", *command.split()],
    env=os.environ | {variable: value},
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=False,
  )
  assert (done.returncode, done.stdout) == (2, ""), done.stderr
  assert done.stderr.startswith("moozi: error: ")
  assert variable in done.stderr
  assert done.stderr.count("\n") == 1
  assert list(tmp_path.iterdir()) == []
