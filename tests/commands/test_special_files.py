"""Tests of every command that reads a run, with something else where one of the run's files belongs."""

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import moozi
from moozi.io import zoo_files
from moozi.io.config import load_config
from tests.tiny_run import RESUMABLE

pytestmark = pytest.mark.slow

LIMIT_S = 120
COMMANDS = (
  ("evaluate", "RUN", "--episodes", "1"),
  ("watch", "RUN", "--episodes", "1"),
  ("play", "RUN"),
  ("inspect", "RUN", "--episode", "0", "--step", "0"),
  ("report", "RUN", "--max-steps", "2"),
  ("compare", "RUN"),
  ("card", "RUN"),
  ("timeline", "RUN"),
  ("latent", "RUN", "--steps", "2"),
  ("trajectories", "RUN"),
  ("reanalyze", "RUN", "--target", "reanalyzed"),
  ("train", "--resume", "RUN", "max_env_steps=400"),
)
PLACES = (
  "config.yaml",
  "metrics.jsonl",
  "summary.json",
  "lock",
  "checkpoints",
  "checkpoints/best.json",
  "checkpoints/*.safetensors",
  "resume",
  "resume/*.safetensors",
  "resume/blocks/*",
  "trajectories",
  "trajectories/*",
  "timeline/*",
  "logs/driver.log",
)


def _socket(path: Path) -> None:
  # A socket's path has at most 107 bytes.
  here = os.open(path.parent, os.O_RDONLY)
  with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
    server.bind(f"/proc/self/fd/{here}/{path.name}")
  os.close(here)


KINDS: dict[str, Callable[[Path], object]] = {
  "pipe": os.mkfifo,
  "socket": _socket,
  "folder": lambda path: (path / "inner").mkdir(parents=True),
  "endless device": lambda path: path.symlink_to("/dev/zero"),
  "loop": lambda path: path.symlink_to(path.name),
  "text where bytes belong": lambda path: path.write_text("text\n"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
  folder = tmp_path_factory.mktemp("trained")
  settings = (*RESUMABLE, "trajectories.save=true", "evaluation.num_envs=1", "evaluation.final_episodes=1")
  return moozi.train(load_config(None, [*settings, f"run.dir={folder}", "run.name=one"])).path


@contextlib.contextmanager
def limited(what: object) -> Iterator[None]:
  """Raises AssertionError in the block if it takes longer than LIMIT_S, for example to open a pipe."""

  def is_over(*_: object) -> None:
    raise AssertionError(f"takes for ever: {what}")

  before = signal.signal(signal.SIGALRM, is_over)
  signal.alarm(LIMIT_S)
  try:
    yield
  finally:
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("first", range(3))
def test_a_command_ends_in_a_line_or_does_without_the_file(trained, folder, cli, first, monkeypatch):
  """The status is 0 or 2; with 2, stderr has one error and no traceback.

  Each place meets each command with one kind, in turn, so that each place and each command meets all kinds.
  """
  places = [place for place in PLACES if [*trained.glob(place)]]
  assert len(places) > 12
  for i, place in [*enumerate(places)][first::3]:
    for j, command in enumerate(COMMANDS):
      kind = [*KINDS][(i // 3 + j) % len(KINDS)]
      run = shutil.copytree(trained, folder / "run")
      for path in [*run.glob(place)]:
        (shutil.rmtree if path.is_dir() else os.unlink)(path)
        KINDS[kind](path)
      arguments = [str(run) if word == "RUN" else word for word in command]
      what = (place, kind, *command)
      with limited(what), open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        status, _, err = cli(*arguments)
      assert status in (0, 2), what
      assert "Traceback" not in err, (what, err)
      if status == 2:
        assert err.count("error: ") == 1, (what, err)
      for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_zoo_leaves_out_an_agent_whose_file_is_something_else(folder, cli, kind, monkeypatch):
  agent = folder / "zoo" / "catch"
  shutil.copytree(zoo_files.zoo_root() / "tiny" / "catch", agent)
  monkeypatch.setattr(zoo_files, "zoo_root", lambda: folder / "zoo")
  assert "zoo:tiny/catch" in cli("zoo")[1]
  for path in [*sorted(agent.rglob("*")), agent]:
    (folder / "kept").mkdir()
    kept = path.rename(folder / "kept" / path.name)
    KINDS[kind](path)
    for options in ((), ("--json",)):
      with limited((path, kind)):
        status, out, err = cli("zoo", *options)
      assert (status, "zoo:tiny/catch" in out, "Traceback" in err) == (0, False, False), (path, err)
      assert len(err.splitlines()) <= 1, (path, err)
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    kept.rename(path)
    kept.parent.rmdir()
