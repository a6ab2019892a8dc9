"""One process at a time writes into a run directory."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moozi.core.config import Config, EnvConfig, RunConfig
from moozi.core.errors import RunError
from moozi.io.run_directory import RunDirectory
from moozi.io.run_lock import LOCK, RunLock

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
  """Another process that writes into the run."""
  command = [sys.executable, "-c", HOLD, str(run.path)]
  process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)})
  assert process.stdout.readline() == b"held\n"
  yield process
  process.kill()
  process.communicate()


def test_the_second_process_is_refused_with_the_first_ones_id(run, holder):
  with pytest.raises(RunError, match=rf"first: process {holder.pid} is writing into this run") as caught:
    run.claim()
  assert "\n" not in str(caught.value)
  assert (run.path / LOCK).read_text() == f"{holder.pid}\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_death_gives_the_lock_back_however_it_comes(run, holder, number):
  holder.send_signal(number)
  holder.wait()
  with run.claim():
    assert (run.path / LOCK).read_text() == f"{os.getpid()}\n"


def test_it_is_held_within_one_process_too_and_given_back_once(run):
  lock = run.claim()
  with pytest.raises(RunError, match=f"process {os.getpid()} is writing"):
    run.claim()
  lock.close()
  lock.close()
  run.claim().close()


def test_what_a_process_starts_does_not_keep_the_lock(run):
  with run.claim():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
  try:
    run.claim().close()
  finally:
    child.kill()
    child.wait()


def test_a_link_in_its_place_is_not_followed(run, tmp_path):
  other = tmp_path / "other"
  other.write_text("kept")
  (run.path / LOCK).symlink_to(other)
  with pytest.raises(RunError, match="cannot be created"):
    RunLock(run.path)
  assert other.read_text() == "kept"


def test_a_file_system_without_locks_is_written_to_with_a_warning(run, monkeypatch, caplog):
  def no_locks(*_):
    raise OSError(95, "Operation not supported")

  monkeypatch.setattr("moozi.io.run_lock.fcntl.flock", no_locks)
  run.claim().close()
  assert "has no locks" in caplog.text
