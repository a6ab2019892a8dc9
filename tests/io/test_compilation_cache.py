"""Tests of the compilation cache."""

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moozi.io import compilation_cache
from moozi.io.compilation_cache import Entries, cache_root, make_private
from tests.tiny_run import TINY

# Compiles a function; prints its result and the number of JAX's cache events of each kind.
_COMPILE = """
import collections, json, logging, warnings
logging.basicConfig(level=logging.WARNING)
import jax
events = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rpartition("/")[2]]))
from moozi.io import compilation_cache
folder = compilation_cache.enable()
compilation_cache.enable()
value = float(jax.jit(lambda x: (x * 1.1).sum())(jax.numpy.arange(8.0)))
print(json.dumps({"folder": str(folder), "value": value, **events}))
"""


def _environment(folder: Path) -> dict[str, str]:
  jax_own = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
  inherited = {name: value for name, value in os.environ.items() if name not in jax_own}
  return inherited | {compilation_cache.VARIABLE: str(folder)}


def _compile(folder: Path) -> tuple[dict, str]:
  """Runs `_COMPILE` in a new process; returns its figures and its standard error."""
  done = subprocess.run(
    [sys.executable, "-c", _COMPILE],
    env=_environment(folder),
    capture_output=True,
    text=True,
    check=True,
  )
  return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_second_process_reads_what_the_first_compiled_and_compiles_damaged_entries_again(tmp_path):
  first, _ = _compile(tmp_path / "cache")
  second, error = _compile(tmp_path / "cache")
  assert first["cache_misses"] > 0
  assert "cache_hits" not in first
  assert second["cache_hits"] == first["cache_misses"]
  assert "cache_misses" not in second
  assert error == ""
  entries = sorted(Path(first["folder"]).glob("*.compiled"))
  for number, path in enumerate(entries):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data if number % 2 else data[: len(data) // 2])
  third, error = _compile(tmp_path / "cache")
  assert third["cache_misses"] == len(entries)
  assert error.count("damaged; compiling again") == len(entries)
  assert first["value"] == second["value"] == third["value"]


def test_each_processor_and_number_of_threads_has_its_own_entries(monkeypatch):
  processor = "processor\t: 0\nmodel name\t: A\nflags\t\t: fma avx2\ncpu MHz\t\t: {mhz}\n"

  def machine(text: str, threads: str = "2") -> str:
    monkeypatch.setenv("NPROC", threads)
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    return compilation_cache._machine()

  own = machine(processor.format(mhz=2_000))
  assert machine(processor.format(mhz=2_500)) == own
  assert machine(processor.format(mhz=2_000).replace("fma ", "")) != own
  assert machine(processor.format(mhz=2_000), threads="1") != own


def test_entries_are_read_back_and_damaged_ones_removed(tmp_path, caplog):
  entries = Entries(tmp_path)
  assert entries.get("jit_f-00") is None
  entries.put("jit_f-00", b"machine code")
  assert entries.get("jit_f-00") == b"machine code"
  (path,) = tmp_path.glob("*.compiled")
  whole = path.read_bytes()
  for damaged in (whole[:-1], b"", whole[:-1] + b"x", b"x" + whole[1:], whole + b"x"):
    path.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
      assert entries.get("jit_f-00") is None
    assert "damaged; compiling again" in caplog.text
    caplog.clear()
    assert not path.exists()
    entries.put("jit_f-00", b"machine code")
    assert entries.get("jit_f-00") == b"machine code"


def test_least_recently_used_entries_of_all_versions_are_removed(tmp_path):
  folders = [tmp_path / name for name in ("old", "new")]
  for folder in folders:
    folder.mkdir()
  old, new = (Entries(folder, max_bytes=3_000) for folder in folders)
  old.put("a", bytes(1_000))
  new.put("b", bytes(1_000))
  for age, path in enumerate(sorted(tmp_path.glob("*/*.compiled"))):
    os.utime(path, (1_000 - age, 1_000 - age))
  assert old.get("a") is not None  # reading an entry makes it the newest
  new.put("c", bytes(1_500))
  assert old.get("a") is not None
  assert new.get("b") is None
  assert new.get("c") is not None


_HOLD = """
import sys, time
from pathlib import Path
from moozi.io.compilation_cache import Entries
entries = Entries(Path(sys.argv[1]))
assert entries.get("f") is None
print("compiling", flush=True)
time.sleep(0.5)
{end}
time.sleep(60)
"""


@pytest.mark.parametrize(
  ("end", "expected"),
  [
    ("entries.put('f', b'theirs')", b"theirs"),
    ("entries.on_duration('/jax/core/compile/backend_compile_duration', 1.0)", None),
    ("raise SystemExit", None),
  ],
)
def test_two_processes_compile_a_function_once(tmp_path, end, expected):
  other = subprocess.Popen(
    [sys.executable, "-c", _HOLD.format(end=end), str(tmp_path)], stdout=subprocess.PIPE, text=True
  )
  try:
    assert other.stdout is not None
    assert other.stdout.readline() == "compiling\n"
    entries, start = Entries(tmp_path), time.monotonic()
    assert entries.get("g") is None  # does not wait for the compilation of f
    assert time.monotonic() - start < 0.4
    assert entries.get("f") == expected
    assert time.monotonic() - start < 20
  finally:
    other.kill()
    other.communicate()


def test_killed_writer_leaves_no_entry(tmp_path, monkeypatch):
  entries = Entries(tmp_path)
  monkeypatch.setattr(Path, "write_bytes", lambda self, data: (_ for _ in ()).throw(OSError("disk full")))
  with pytest.raises(OSError, match="disk full"):
    entries.put("f", b"code")
  assert list(tmp_path.glob("*.compiled")) == []


def test_folder_is_private(tmp_path):
  old = os.umask(0)
  try:
    make_private(tmp_path / "a" / "b")
  finally:
    os.umask(old)
  assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
  assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
  make_private(tmp_path / "a" / "b")


@pytest.mark.parametrize(("mode", "message"), [(0o707, "every user"), (0o770, "its group")])
def test_folder_where_others_can_write_is_refused(tmp_path, mode, message):
  folder = tmp_path / "cache"
  folder.mkdir()
  folder.chmod(mode)
  with pytest.raises(PermissionError, match=message):
    make_private(folder)
  # Users who can write to the parent could replace the folder, unless the parent is sticky, like /tmp.
  parent = tmp_path / "parent"
  (parent / "cache").mkdir(parents=True)
  parent.chmod(0o777)
  with pytest.raises(PermissionError, match="parent: every user"):
    make_private(parent / "cache")
  parent.chmod(0o1777)
  make_private(parent / "cache")


def test_folder_of_another_user_and_links_are_refused(tmp_path, monkeypatch):
  make_private(tmp_path / "cache")
  (tmp_path / "link").symlink_to(tmp_path / "cache")
  with pytest.raises(PermissionError, match="not a link"):
    make_private(tmp_path / "link")
  monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
  with pytest.raises(PermissionError, match="belongs to user"):
    make_private(tmp_path / "cache")


def test_location(monkeypatch, tmp_path):
  monkeypatch.delenv(compilation_cache.VARIABLE, raising=False)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  assert cache_root() == tmp_path / "moozi" / "compiled"
  monkeypatch.setenv("XDG_CACHE_HOME", "relative")
  assert cache_root() == Path.home() / ".cache" / "moozi" / "compiled"
  monkeypatch.setenv(compilation_cache.VARIABLE, "~/elsewhere")
  assert cache_root() == Path.home() / "elsewhere"
  for off in ("off", "OFF", "0"):
    monkeypatch.setenv(compilation_cache.VARIABLE, off)
    assert cache_root() is None


def test_cache_that_cannot_be_used_is_a_warning(tmp_path):
  folder = tmp_path / "shared"
  folder.mkdir()
  folder.chmod(0o777)
  done, error = _compile(folder)
  assert done["folder"] == "None"
  assert "compiled functions are not kept" in error
  assert "every user can write there" in error


_TRAIN = """
import sys
from pathlib import Path
import numpy as np
from moozi.io import compilation_cache
from moozi.io.config import load_config
compilation_cache.enable()
from moozi.core.flat_state import tree_state
from moozi.run import build, local
from moozi.run.events import StateReady
from moozi.run.session import RunInputs
config = load_config(None, sys.argv[2:])
states = [e.state for e in local.run(RunInputs(config, build.env_spec(config))) if isinstance(e, StateReady)]
np.savez(sys.argv[1], **{name.replace("/", "|"): x for name, x in tree_state(states[-1].training).items()})
"""


@pytest.mark.slow
def test_run_is_equal_to_the_bit_without_with_empty_and_with_filled_cache(tmp_path):
  import numpy as np

  results = []
  for number, folder in enumerate(("off", tmp_path / "cache", tmp_path / "cache")):
    out = tmp_path / f"{number}.npz"
    command = [sys.executable, "-c", _TRAIN, str(out), *TINY, "runtime=local", "reanalyze.ratio=0.5"]
    subprocess.run(command, env=_environment(Path(folder)), check=True)
    results.append(dict(np.load(out)))
  assert list(tmp_path.glob("cache/*/*.compiled"))
  assert results[0]
  for other in results[1:]:
    assert other.keys() == results[0].keys()
    for name, x in results[0].items():
      assert x.tobytes() == other[name].tobytes(), name
