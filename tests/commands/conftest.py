"""Fixtures for tests of the command line: small runs and a pseudo-terminal."""

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from pathlib import Path
from unittest import mock

import jax
import pytest

from moozi import cli
from moozi.io.checkpoints import expected_of, save_checkpoint
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.run import build
from moozi.training.algorithms import algorithm_of
from tests.acting.parameters import random_state
from tests.tiny_run import TINY

PPO = ("algorithm=ppo", "ppo.network.kind=mlp", "ppo.network.hidden_sizes=[8]")


def make_run(folder: Path, name: str, *overrides: str, checkpoint: bool = True) -> Path:
  """Creates a run directory like that of `moozi train`, with an untrained network; returns its path."""
  # With one environment in evaluations, all commands share one compiled search.
  names = (f"run.dir={folder}", f"run.name={name}")
  config = load_config(None, [*TINY, "evaluation.num_envs=1", *names, *overrides])
  run = RunDirectory.create(config)
  if not checkpoint:
    return run.path
  spec = build.env_spec(config)
  if config.algorithm in ("muzero", "alphazero", "ppo"):
    state = random_state(config, spec)
  else:
    state = jax.device_get(algorithm_of(config).initial_training_state(config, spec))
  meta = {"env_steps": 64, "learner_steps": 3} | expected_of(config, spec)
  save_checkpoint(run.checkpoints_path, "step_000000064", state, meta)
  return run.path


class Runs(dict[str, Path]):
  """Maps names to run directories, which are created on first use."""

  OVERRIDES = {  # noqa: RUF012
    "catch": (),
    "board": ("env.name=open_spiel:tic_tac_toe",),
    "clock": ("evaluation.max_episode_steps=4",),
    "ppo": PPO,
    "q_learning": ("algorithm=q_learning", "q_learning.kind=table", "env.name=open_spiel:tic_tac_toe"),
    "empty": (),
  }

  def __init__(self, folder: Path) -> None:
    super().__init__()
    self._folder = folder

  def __missing__(self, name: str) -> Path:
    self[name] = make_run(self._folder, name, *self.OVERRIDES[name], checkpoint=name != "empty")
    return self[name]


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Runs:
  """Returns the runs, by the names in `Runs.OVERRIDES`."""
  return Runs(tmp_path_factory.mktemp("runs"))


class Terminal:
  """A pseudo-terminal that records its output and to which a test can send keys."""

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
    """Sends keys to the terminal, where the program under test reads them."""
    os.write(self.master, keys.encode())

  def text(self) -> str:
    """Closes the terminal and returns its output."""
    self.stdout.close()
    self.stdin.close()
    os.close(self.slave)
    # Once all writers have closed the terminal, the reader thread ends.
    self._reader.join(timeout=30)
    assert not self._reader.is_alive()
    os.close(self.master)
    return self._written.decode()


@pytest.fixture
def terminal(monkeypatch):
  """Connects standard input and output to a terminal of 100 columns and 30 rows; yields the terminal."""
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
  """Runs the command line in the fixture's terminal and returns its status."""
  assert _terminal is not None
  # Between a fixture and its test, pytest restores its own streams, so they are replaced again.
  with (
    mock.patch.object(sys, "stdin", _terminal.stdin),
    mock.patch.object(sys, "stdout", _terminal.stdout),
    pytest.raises(SystemExit) as caught,
  ):
    cli.main([str(a) for a in arguments])
  return caught.value.code
