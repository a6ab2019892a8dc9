"""What the commands' tests share: small runs with a checkpoint, the door, and a terminal."""

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from pathlib import Path
from unittest import mock

import pytest

from moozi import cli
from moozi.io.checkpoints import expected_of, save_checkpoint
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.run import build
from tests.tiny_run import TINY

PPO = ("algorithm=ppo", "ppo.network.kind=mlp", "ppo.network.hidden_sizes=[8]")


def make_run(folder: Path, name: str, *overrides: str, checkpoint: bool = True) -> Path:
  """A run of a network that has learned nothing, as `moozi train` leaves it."""
  config = load_config(None, [*TINY, f"run.dir={folder}", f"run.name={name}", *overrides])
  run = RunDirectory.create(config)
  if not checkpoint:
    return run.path
  spec = build.env_spec(config)
  if config.algorithm == "ppo":
    from moozi.baselines.ppo.network import make_network
    from moozi.baselines.ppo.run import Learner

    state = Learner(make_network(config.ppo.network, spec), config, spec, None).get_state()
  else:
    state = build.build_learner(config, spec).get_state()
  meta = {"env_steps": 64, "learner_steps": 3} | expected_of(config, spec)
  save_checkpoint(run.checkpoints_path, "step_000000064", state, meta)
  return run.path


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, Path]:
  """A run of Catch, one of tic-tac-toe, one of Catch that a clock ends, one of PPO, and one that has no
  checkpoint."""
  folder = tmp_path_factory.mktemp("runs")
  return {
    "catch": make_run(folder, "catch"),
    "board": make_run(folder, "board", "env.name=open_spiel:tic_tac_toe"),
    "clock": make_run(folder, "clock", "evaluation.max_episode_steps=4"),
    "ppo": make_run(folder, "ppo", *PPO),
    "empty": make_run(folder, "empty", checkpoint=False),
  }


class Terminal:
  """A pseudo-terminal: what is written to it is kept, and keys can be pressed."""

  def __init__(self) -> None:
    self.master, self.slave = pty.openpty()
    fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    self.stdin = os.fdopen(os.dup(self.slave), "r")
    self.stdout = os.fdopen(os.dup(self.slave), "w")
    self._written = b""
    self._reader = threading.Thread(target=self._read, daemon=True)
    self._reader.start()

  def _read(self) -> None:
    while True:
      try:
        data = os.read(self.master, 4096)
      except OSError:
        return
      if not data:
        return
      self._written += data

  def press(self, keys: str) -> None:
    """Types ahead."""
    os.write(self.master, keys.encode())

  def text(self) -> str:
    """What was written so far, the terminal closed for writing."""
    self.stdout.close()
    self.stdin.close()
    os.close(self.slave)
    # With the last writer gone the reader meets an error once it has everything.
    self._reader.join(timeout=30)
    assert not self._reader.is_alive()
    os.close(self.master)
    return self._written.decode()


@pytest.fixture
def terminal(monkeypatch):
  """Standard input and output are a terminal of 100 columns and 30 rows."""
  out = Terminal()
  monkeypatch.setenv("TERM", "xterm-256color")
  monkeypatch.setenv("COLORTERM", "truecolor")
  monkeypatch.setenv("COLUMNS", "100")
  monkeypatch.setenv("LINES", "30")
  monkeypatch.delenv("NO_COLOR", raising=False)
  monkeypatch.setattr(sys, "stdin", out.stdin)
  monkeypatch.setattr(sys, "stdout", out.stdout)
  monkeypatch.setattr(f"{__name__}._terminal", out)
  return out


_terminal: Terminal | None = None


def in_terminal(*arguments: object) -> int:
  """Runs the command line in the terminal of the fixture, and returns its status."""
  assert _terminal is not None
  # Again, since pytest puts its own streams back between a fixture and its test.
  with (
    mock.patch.object(sys, "stdin", _terminal.stdin),
    mock.patch.object(sys, "stdout", _terminal.stdout),
    pytest.raises(SystemExit) as caught,
  ):
    cli.main([str(a) for a in arguments])
  return caught.value.code
