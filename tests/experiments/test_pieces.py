"""Commands in a piece of time: they run to their end, or are told once, and never outlive their caller."""

import concurrent.futures
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.lib.pieces import Piece

PATIENT = """
import pathlib, signal, sys, time
count = []
signal.signal(signal.SIGTERM, lambda *_: count.append(1))
pathlib.Path(sys.argv[1]).write_text("here")
while not count:
  signal.pause()
time.sleep(1.5)  # for three looks of the caller's
print(len(count))
"""
DEAF = """
import os, pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
while True:
  signal.pause()
"""


def run(piece: Piece, folder: Path, program: str, **kwargs) -> tuple[int, str]:
  with open(folder / "out", "w+") as out, open(folder / "err", "w") as err:
    status = piece.run([sys.executable, "-c", program, folder / "here"], out, err, **kwargs)
    out.seek(0)
    return status, out.read()


def end_when_here(piece: Piece, folder: Path):
  def look() -> None:
    if (folder / "here").exists():
      piece.end()

  return look


def test_a_command_runs_to_its_own_end(tmp_path):
  with Piece(None) as piece:
    assert run(piece, tmp_path, "print('said'); raise SystemExit(3)") == (3, "said\n")
    assert not piece.is_over
    assert piece.left_s > 1e9


def test_when_the_piece_is_over_the_command_is_told_once_and_waited_for(tmp_path):
  with Piece(3600) as piece:
    assert 3500 < piece.left_s <= 3600
    assert run(piece, tmp_path, PATIENT, on_wait=end_when_here(piece, tmp_path)) == (0, "1\n")
    assert piece.is_over


def test_a_command_that_does_not_listen_is_killed(tmp_path):
  with Piece(None, patience_s=0.1) as piece:
    status, _ = run(piece, tmp_path, DEAF, on_wait=end_when_here(piece, tmp_path))
  assert status == -signal.SIGKILL


def test_what_goes_wrong_in_the_caller_leaves_nothing_running(tmp_path):
  def look() -> None:
    if (tmp_path / "here").read_text() if (tmp_path / "here").exists() else "":
      raise ValueError("the caller's")

  with Piece(None) as piece, pytest.raises(ValueError, match="the caller's"):
    run(piece, tmp_path, DEAF, on_wait=look)
  with pytest.raises(ProcessLookupError):
    os.kill(int((tmp_path / "here").read_text()), 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_piece_and_only_while_it_lasts(number):
  before = signal.getsignal(number)
  with Piece(3600) as piece:
    os.kill(os.getpid(), number)
    assert piece.is_over
  assert signal.getsignal(number) is before


def test_the_lock_names_every_command_that_goes_on(tmp_path):
  """One of them may outlive a caller that is killed, and who comes second must find it."""
  named: list[str] = []

  class Lock:
    def fileno(self) -> int:
      return 0

    def name_holder(self, holder: str) -> None:
      named.append(holder)

  def look() -> None:
    if len(named) == 2 and not (tmp_path / "go").exists():
      (tmp_path / "go").touch()

  program = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists():\n  time.sleep(0.05)"
  with Piece(60) as piece, concurrent.futures.ThreadPoolExecutor(2) as pool:
    command = [sys.executable, "-c", program, tmp_path / "go"]
    runs = [pool.submit(piece.run, command, subprocess.DEVNULL, None, look, Lock()) for _ in range(2)]
    assert [run.result() for run in runs] == [0, 0]
  both = [line for line in named if " and " in line]
  assert both[0].startswith(f"{os.getpid()} with its command ")
  assert named[-1] == str(os.getpid())
