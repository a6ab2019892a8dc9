"""Tests of commands in a time budget, which stops a command with one SIGTERM."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from moozi.experiments.time_budget import TimeBudget

PATIENT = """
import pathlib, signal, sys, time
count = []
signal.signal(signal.SIGTERM, lambda *_: count.append(1))
pathlib.Path(sys.argv[1]).write_text("started")
while not count:
  signal.pause()
time.sleep(0.7)  # several polls of the caller
print(len(count))
"""
DEAF = """
import os, pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
while True:
  signal.pause()
"""


def run(budget: TimeBudget, folder: Path, program: str) -> tuple[int, str]:
  with open(folder / "out", "w+") as out:
    status = budget.run([sys.executable, "-c", program, folder / "started"], out)
    out.seek(0)
    return status, out.read()


def end_when_started(budget: TimeBudget, folder: Path) -> None:
  def watch() -> None:
    while not (folder / "started").exists():
      time.sleep(0.02)
    budget.end()

  threading.Thread(target=watch).start()


def test_command_ends_on_its_own(tmp_path):
  with TimeBudget(3600) as budget:
    assert run(budget, tmp_path, "print('text'); raise SystemExit(3)") == (3, "text\n")
    assert not budget.is_over
    assert 3500 < budget.remaining_s <= 3600


def test_command_gets_one_sigterm(tmp_path):
  with TimeBudget(3600) as budget:
    end_when_started(budget, tmp_path)
    assert run(budget, tmp_path, PATIENT) == (0, "1\n")
    assert budget.is_over


@pytest.mark.slow
def test_command_that_ignores_sigterm_is_killed(tmp_path):
  with TimeBudget(3600, patience_s=0.1) as budget:
    end_when_started(budget, tmp_path)
    assert run(budget, tmp_path, DEAF)[0] == -signal.SIGKILL


@pytest.mark.slow
def test_exception_kills_the_command(tmp_path):
  class Broken(TimeBudget):
    @property
    def is_over(self) -> bool:
      if (tmp_path / "started").exists() and (tmp_path / "started").read_text():
        raise ValueError("broken")
      return False

  with Broken(3600) as budget, pytest.raises(ValueError, match="broken"):
    run(budget, tmp_path, DEAF)
  with pytest.raises(ProcessLookupError):
    os.kill(int((tmp_path / "started").read_text()), 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_budget(number):
  inherited = signal.signal(number, signal.SIG_DFL)  # a shell's background jobs ignore SIGINT
  try:
    with TimeBudget(3600) as budget:
      signal.raise_signal(number)
      assert budget.is_over
    assert signal.getsignal(number) is signal.SIG_DFL
  finally:
    signal.signal(number, inherited)
