"""Tests of the lock of a run directory."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from moozi.core.config import Config, EnvConfig, RunConfig
from moozi.core.errors import RunError
from moozi.io import run_lock
from moozi.io.run_directory import RunDirectory
from moozi.io.run_lock import LOCK, RunLock, is_locked

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from moozi.io.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path) -> RunDirectory:
  config = Config(run=RunConfig(dir=str(tmp_path / "runs"), name="first"), env=EnvConfig(name="tiny:catch"))
  return RunDirectory.create(config)


@pytest.fixture
def holder(run):
  """Yields another process, which holds the run's lock."""
  command = [sys.executable, "-c", HOLD, str(run.path)]
  process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)})
  assert process.stdout.readline() == b"held\n"
  yield process
  process.kill()
  process.communicate()


def test_second_process_is_refused(run, holder):
  with pytest.raises(RunError, match=rf"first: process {holder.pid} is writing into this run") as caught:
    run.claim()
  assert "\n" not in str(caught.value)
  assert (run.path / LOCK).read_text() == f"{holder.pid}\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_process_releases_the_lock(run, holder, number):
  holder.send_signal(number)
  holder.wait()
  with run.claim():
    assert (run.path / LOCK).read_text() == f"{os.getpid()}\n"


def test_lock_also_works_within_a_process(run):
  lock = run.claim()
  with pytest.raises(RunError, match=f"process {os.getpid()} is writing"):
    run.claim()
  lock.close()
  lock.close()
  run.claim().close()


def test_child_does_not_keep_the_lock(run):
  with run.claim():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
  try:
    run.claim().close()
  finally:
    child.kill()
    child.wait()


def test_link_as_lock_is_refused(run, tmp_path):
  other = tmp_path / "other"
  other.write_text("kept")
  (run.path / LOCK).symlink_to(other)
  with pytest.raises(RunError, match="cannot be created"):
    RunLock(run.path)
  assert other.read_text() == "kept"


def test_file_system_without_locks_warns(run, monkeypatch, caplog):
  def no_locks(*_):
    raise OSError(95, "Operation not supported")

  monkeypatch.setattr("moozi.io.run_lock.fcntl.flock", no_locks)
  run.claim().close()
  assert "has no locks" in caplog.text


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path.parent / "pipe")])
def test_a_lock_that_is_no_file_is_not_locked(run, make):
  """Opening a pipe without a writer would wait for ever."""
  os.mkfifo(run.path / "pipe")
  make(run.path / LOCK)
  is_done = threading.Event()
  thread = threading.Thread(target=lambda: is_locked(run.path) or is_done.set(), daemon=True)
  thread.start()
  assert is_done.wait(60)


def test_query_does_not_refuse_a_writer(run, monkeypatch):
  """The lock is free again before the second try."""
  (run.path / LOCK).touch()
  with (run.path / LOCK).open("rb") as file:
    run_lock.fcntl.flock(file, run_lock.fcntl.LOCK_SH)
    monkeypatch.setattr(run_lock.time, "sleep", lambda _: run_lock.fcntl.flock(file, run_lock.fcntl.LOCK_UN))
    with run.claim():
      assert is_locked(run.path)
  assert not is_locked(run.path)
