"""Tests of ends of runs whose files cannot be written, or whose directory was moved. Nothing is compiled."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from moozi.api.training import Training, _finish
from moozi.commands import train as command
from moozi.core.errors import RunError
from moozi.io import state_file
from moozi.io.checkpoints import list_checkpoints
from moozi.io.config import load_config
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory
from moozi.run.events import Finished, StateReady
from moozi.run.state import RunState
from moozi.training import start
from tests.training.test_recorder import SPEC


def states(env_steps: int) -> StateReady:
  """Returns an event whose state is written before the next event, as a run's last state is."""
  state = RunState(training={"w": np.full(3, env_steps, np.float32)}, progress={"x": np.zeros(3)})
  return StateReady(env_steps=env_steps, learner_steps=env_steps, state=state, is_final=True)


@pytest.fixture
def train(tmp_path, monkeypatch):
  """Returns a function that starts a run whose directory something happens to between steps 10 and 20."""
  made: list[Training] = []

  def start_with(happens: Callable[[Path], object], name: str = "one", parent: str = "a b") -> Training:
    class Algorithm:
      def run(self, inputs):
        yield states(10)
        happens(directory.path)
        yield states(20)
        yield Finished(env_steps=20, learner_steps=20, reason="max_env_steps", sample_reuse=0.0)

    monkeypatch.setattr(start, "algorithm_of", lambda config: Algorithm())
    settings = [f"run.dir={tmp_path / parent}", f"run.name={name}", "logging.progress=none"]
    config = load_config(None, [*settings, "logging.period_s=1e-9", "env.name=tiny:catch"])
    directory = RunDirectory.create(config)
    made.append(Training(config, SPEC, directory, directory.claim(), None, ()))
    return made[0]

  yield start_with
  for training in made:
    training.close()


def steps_of(path: Path) -> list[int]:
  return [info.env_steps for info in list_checkpoints(path / "checkpoints")]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_lost_last_checkpoint_is_an_error(train, monkeypatch, number):
  def fails(*_):
    raise OSError(number, os.strerror(number))

  training = train(lambda _: monkeypatch.setattr(state_file, "write_bytes", fails))
  path = training.run.path
  with pytest.raises(RunError) as caught:
    _finish(training)
  assert str(caught.value) == (
    f"{path}: the last checkpoint, at 20 environment steps, cannot be written: {os.strerror(number)}; the "
    f"newest checkpoint is step_000000010; continue with: moozi train --resume '{path}'"
  )
  assert steps_of(path) == [10]
  assert training.summary is None
  assert not (path / "summary.json").exists()


def test_a_last_checkpoint_that_is_written_at_the_second_attempt_is_none(train, monkeypatch):
  write, left = state_file.write_bytes, [1]

  def fails_once(*arguments):
    if left:
      left.pop()
      raise OSError(errno.ENOSPC, "full")
    return write(*arguments)

  training = train(lambda _: monkeypatch.setattr(state_file, "write_bytes", fails_once))
  assert steps_of(_finish(training).path) == [10, 20]
  assert (training.run.path / "summary.json").exists()


def test_a_renamed_run_goes_on_in_its_own_folder(train, tmp_path):
  training = train(lambda path: path.rename(tmp_path / "new ü"))
  _finish(training)
  assert training.run.path == tmp_path / "new ü"
  assert steps_of(training.run.path) == [10, 20]
  assert training.run.summary["env_steps"] == 20
  assert {tick["env_steps"] for tick in read_metrics(training.run.path / "metrics.jsonl")} == {10, 20}
  assert {path.stem for path in (training.run.path / "resume").glob("step_*")} == {
    "step_000000010",
    "step_000000020",
  }
  assert not list((tmp_path / "a b").iterdir())


def test_another_folder_in_its_place_stays_as_it_is(train, tmp_path):
  def replace(path: Path) -> None:
    path.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", path)

  training = train(replace)
  path = training.run.path
  _finish(training)
  assert training.run.path == tmp_path / "moved"
  assert steps_of(tmp_path / "moved") == [10, 20]
  assert steps_of(path) == [10]


def test_a_swapped_link_does_not_split_the_run(train, tmp_path):
  (tmp_path / "disk").mkdir()
  (tmp_path / "other").mkdir()
  (tmp_path / "link").symlink_to("disk")

  def swap(_: Path) -> None:
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("other")

  training = train(swap, parent="link")
  _finish(training)
  assert steps_of(tmp_path / "disk" / "one") == [10, 20]
  assert training.run.path.resolve() == tmp_path / "disk" / "one"
  assert not list((tmp_path / "other").iterdir())


def test_a_removed_run_ends_with_an_error(train):
  training = train(shutil.rmtree)
  path = training.run.path
  with pytest.raises(
    RunError, match="the last checkpoint, at 20 environment steps, cannot be written: No such"
  ):
    _finish(training)
  assert not path.exists()


def test_the_command_ends_with_status_2_and_one_line(train, monkeypatch, cli, tmp_path):
  def fails(*_):
    raise OSError(errno.ENOSPC, "No space left on device")

  training = train(lambda _: monkeypatch.setattr(state_file, "write_bytes", fails))
  monkeypatch.setattr(command, "_start", lambda *_: command._run_training(training))
  status, out, err = cli("train", "tiny/catch")
  assert status == 2
  assert "return" not in out
  assert (
    "the last checkpoint, at 20 environment steps, cannot be written: No space left" in err.splitlines()[-1]
  )
