"""Tests of a full disk: the run continues, existing files stay intact, pending output is written later."""

import contextlib
import dataclasses
import errno
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import moozi
from moozi.io import run_directory, sinks, state_file
from moozi.io.checkpoints import list_checkpoints, load_checkpoint, read_best
from moozi.io.config import load_config
from moozi.io.logs import setup_logging
from moozi.io.metrics import MetricsSink, read_metrics
from moozi.io.progress import make_progress
from moozi.io.run_directory import RunDirectory
from moozi.io.sinks import AppendFile
from moozi.run.events import Finished, StateReady
from moozi.run.state import RunState
from moozi.training.recorder import Recorder
from moozi.vis import evaluation_gifs
from tests.io.test_metrics import events_in
from tests.training.test_recorder import SPEC, Display, evaluated

STATE = {"w": np.arange(60_000, dtype=np.float32)}  # 240 kB
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class InjectedDisk:
  """Makes writes fail while `is_full`; `os.write` first writes half of its data."""

  def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    self.path, self.is_full = folder, False

    def write(file: int, data: bytes) -> int:
      if not self.is_full:
        return os.write(file, data)
      if len(data) > 20:
        return os.write(file, data[: len(data) // 2])
      raise NO_SPACE

    def failing(function):
      def call(*args, **kwargs):
        if self.is_full:
          raise NO_SPACE
        return function(*args, **kwargs)

      return call

    monkeypatch.setattr(sinks, "os", SimpleNamespace(**(vars(os) | {"write": write})))
    monkeypatch.setattr(state_file, "write_bytes", failing(state_file.write_bytes))
    monkeypatch.setattr(run_directory, "write_text", failing(run_directory.write_text))
    monkeypatch.setattr(evaluation_gifs, "write_video", failing(evaluation_gifs.write_video))

  def fill(self) -> None:
    self.is_full = True

  def free(self) -> None:
    self.is_full = False


class SmallDisk:
  """Mounts a small file system in memory, and fills it with a file."""

  def __init__(self, folder: Path, mib: int = 2) -> None:
    self.path, self._ballast = folder, folder / "ballast"
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
    try:
      done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
      pytest.skip(f"cannot mount a file system: {error}")
    if done.returncode:
      pytest.skip(f"mounting a file system needs privileges: {done.stderr.strip()}")

  def fill(self) -> None:
    with open(self._ballast, "ab", buffering=0) as file:
      for size in (65536, 4096, 1):
        with contextlib.suppress(OSError):
          while True:
            file.write(b"\0" * size)
    assert os.statvfs(self.path).f_bavail == 0

  def free(self) -> None:
    self._ballast.unlink()

  def unmount(self) -> None:
    subprocess.run(["umount", str(self.path)], check=True)


@pytest.fixture(params=["injected", "tmpfs"])
def disk(request, tmp_path, monkeypatch):
  """Yields a folder on a disk that the test can fill and free."""
  folder = tmp_path / "disk"
  folder.mkdir()
  if request.param == "injected":
    yield InjectedDisk(folder, monkeypatch)
    return
  small = SmallDisk(folder)
  yield small
  small.unmount()


def test_no_partial_line_and_all_lines_in_the_end(disk):
  file, path = AppendFile(disk.path / "log"), disk.path / "log"
  lines = [f"{i} {'x' * 5000}\n".encode() for i in range(12)]
  file.write(lines[0])
  disk.fill()
  for line in lines[1:9]:
    with pytest.raises(OSError, match="No space left"):
      file.write(line)
  # The file system may have had space for a few lines, but no line may be cut.
  kept = path.read_bytes()
  assert kept == b"".join(lines)[: len(kept)]
  assert kept.endswith(b"\n")
  disk.free()
  for line in lines[9:]:
    file.write(line)
  file.close()
  file.close()
  assert path.read_bytes() == b"".join(lines)


def test_pending_lines_are_bounded(tmp_path, monkeypatch):
  disk = InjectedDisk(tmp_path, monkeypatch)
  file = AppendFile(tmp_path / "log", max_pending_bytes=300)
  disk.fill()
  for i in range(10):
    with pytest.raises(OSError, match="No space"):
      file.write(bytes([65 + i]) * 99 + b"\n")
  disk.free()
  file.close()
  assert [line[:1] for line in (tmp_path / "log").read_bytes().splitlines()] == [b"H", b"I", b"J"]


def test_append_file_refuses_links(tmp_path):
  (tmp_path / "log").symlink_to(tmp_path / "other")
  with pytest.raises(OSError, match="symbolic links"):
    AppendFile(tmp_path / "log")
  assert not (tmp_path / "other").exists()


def test_metrics_and_tensorboard_lose_nothing(disk):
  sink = MetricsSink(disk.path / "metrics.jsonl", disk.path / "tensorboard")

  def write(step):
    sink.write(env_steps=step, learner_steps=0, wall_s=1.0, scalars={"a" * 3000: step})

  write(1)
  disk.fill()
  for step in range(2, 7):
    with pytest.raises(OSError, match="No space"):
      write(step)
  disk.free()
  write(7)
  sink.close()
  assert [tick["env_steps"] for tick in read_metrics(disk.path / "metrics.jsonl")] == list(range(1, 8))
  steps = [event.step for event in events_in(disk.path / "tensorboard") if event.summary.value]
  assert steps == list(range(1, 8))


def test_run_continues_and_keeps_its_checkpoint(disk, caplog):
  overrides = [f"run.dir={disk.path}", "run.name=one", "logging.period_s=1e-9", "checkpoint.keep_last=1"]
  config = load_config(None, overrides)
  run, display = RunDirectory.create(config), Display()
  recorder = Recorder(config, SPEC, run, display, start=0.0)

  def state_at(step, is_final=False):
    state = RunState(training=STATE)
    recorder.observe(StateReady(env_steps=step, learner_steps=1, state=state, is_final=is_final))
    recorder.flush()
    return [c.env_steps for c in list_checkpoints(run.checkpoints_path)]

  assert state_at(10) == [10]
  disk.fill()
  assert state_at(20) == [10]
  recorder.observe(evaluated(20))
  assert state_at(30) == [10]
  loaded = load_checkpoint(run.checkpoints_path / "step_000000010_params.safetensors", STATE)
  np.testing.assert_array_equal(loaded["w"], STATE["w"])
  assert [p.name for p in run.checkpoints_path.iterdir()] == ["step_000000010_params.safetensors"]
  failures = [note for note in display.notes if "cannot be written" in note]
  # Metrics may not fail, because a short line can still fit into the last block of its file.
  names = [note.partition(" cannot")[0] for note in failures]
  assert len(names) == len(set(names))
  assert {"a GIF", "a checkpoint"} <= set(names) <= {"a GIF", "a checkpoint", "metrics"}
  assert all("No space left on device; the run continues" in note for note in failures)
  assert caplog.text.count("a checkpoint cannot be written") == 1
  disk.free()
  assert state_at(40) == [40]
  recorder.observe(evaluated(40))
  assert any("a checkpoint can be written again" in note for note in display.notes)
  recorder.observe(Finished(env_steps=40, learner_steps=1, reason="stopped", sample_reuse=0.0))
  recorder.close()
  ticks = read_metrics(run.metrics_path)
  # An evaluation has a tick of its own, which follows a tick for the events before it. A state has one only
  # if no update is later than it.
  assert [tick["env_steps"] for tick in ticks] == [10] + [20] * 3 + [40] * 3
  assert ticks[-1]["faults/disk"] == run.read_summary()["faults"]["disk"] >= 3
  assert [path.name for path in run.gifs_path.iterdir()] == ["step_000000040.gif"]


def test_last_checkpoint_is_retried_at_the_end(disk):
  config = load_config(None, [f"run.dir={disk.path}", "run.name=one", "logging.tensorboard=false"])
  run, display = RunDirectory.create(config), Display()
  recorder = Recorder(config, SPEC, run, display, start=0.0)
  disk.fill()
  recorder.observe(StateReady(env_steps=10, learner_steps=1, state=RunState(training=STATE), is_final=True))
  assert not list_checkpoints(run.checkpoints_path)
  disk.free()
  recorder.observe(Finished(env_steps=10, learner_steps=1, reason="stopped", sample_reuse=0.0))
  recorder.close()
  assert [c.env_steps for c in list_checkpoints(run.checkpoints_path)] == [10]
  assert "last checkpoint at 10 steps" in display.notes


def test_best_checkpoint_is_retried_with_the_next_one(disk):
  config = load_config(None, [f"run.dir={disk.path}", "run.name=one", "logging.tensorboard=false"])
  run, display = RunDirectory.create(config), Display()
  recorder = Recorder(config, SPEC, run, display, start=0.0)

  def save(env_steps, best_bound=None):
    state = RunState(training={"w": np.full(3, env_steps, np.float32)})
    recorder.observe(StateReady(env_steps=env_steps, learner_steps=1, state=state, best_bound=best_bound))
    recorder.flush()

  disk.fill()
  save(10, best_bound=9.0)
  save(20)
  assert read_best(run.checkpoints_path) is None
  disk.free()
  save(30)
  recorder.close()
  best = read_best(run.checkpoints_path)
  assert best.bound == 9.0
  (found,) = [c for c in list_checkpoints(run.checkpoints_path) if c.name == best.name]
  assert load_checkpoint(found.path, {"w": np.zeros(3, np.float32)})["w"][0] == 10
  assert max(c.env_steps for c in list_checkpoints(run.checkpoints_path)) == 30


@pytest.mark.parametrize("after", ["nothing", "a state", "the best state", "both"])
def test_run_ends_on_a_full_disk(disk, after):
  """The best state and the state after the final evaluation follow the last state of training."""
  config = load_config(None, [f"run.dir={disk.path}", "run.name=one", "logging.period_s=1e-9"])
  run, display = RunDirectory.create(config), Display()
  recorder = Recorder(config, SPEC, run, display, start=0.0)
  disk.fill()
  recorder.observe(StateReady(env_steps=10, learner_steps=1, state=RunState(training=STATE), is_final=True))
  later = StateReady(env_steps=10, learner_steps=1, state=RunState(training=STATE))
  if after in ("the best state", "both"):
    recorder.observe(dataclasses.replace(later, best_bound=1.0))
  if after in ("a state", "both"):
    recorder.observe(later)
  recorder.observe(Finished(env_steps=10, learner_steps=1, reason="stopped", sample_reuse=0.0))
  recorder.close()
  assert recorder.summary["reason"] == "stopped"
  assert recorder.unsaved == (
    "the last checkpoint, at 10 environment steps, cannot be written: No space left on device"
  )
  assert not (run.path / "summary.json").exists()
  assert not [path for path in run.path.iterdir() if path.name.endswith(".tmp")]


def test_a_disk_that_is_nearly_full_is_reported_a_few_times():
  """Short lines fit between failures; without a bound, each of these would be two notes."""
  notes = []
  guard = sinks.SinkGuard(notes.append)

  def write(*outcomes):
    for is_written in outcomes:
      with guard.writing("metrics"):
        if not is_written:
          raise NO_SPACE

  write(*[False, True] * 36)
  assert len(notes) == 3
  write(*[False, True, True] * 36)
  assert len(notes) == 5
  assert guard.num_failures == 72
  assert notes[-1].startswith("metrics cannot be written")
  write(*[True] * 36)
  assert notes[-1] == "metrics can be written again"
  write(*[True] * 36)
  assert len(notes) == 6
  assert guard.reasons == {"metrics": "No space left on device"}


def test_other_errors_are_raised(tmp_path):
  config = load_config(None, [f"run.dir={tmp_path}", "run.name=one", "logging.tensorboard=false"])
  recorder = Recorder(config, SPEC, RunDirectory.create(config), Display(), start=0.0)
  recorder.observe(StateReady(env_steps=1, learner_steps=1, state=RunState(training={"x": object()})))
  with pytest.raises(ValueError, match="cannot be stored"):
    recorder.flush()
  recorder.close()


def test_logs_and_display_ignore_a_full_device(capfd):
  import logging

  if not Path("/dev/full").exists():
    pytest.skip("no /dev/full here")
  setup_logging(Path("/dev/full"))
  try:
    for _ in range(3):
      logging.getLogger("moozi.test").info("a line")
  finally:
    logging.captureWarnings(False)
    logging.getLogger("moozi").setLevel(logging.NOTSET)
    root = logging.getLogger()
    for handler in [h for h in root.handlers if getattr(h, "baseFilename", "") == "/dev/full"]:
      root.removeHandler(handler)
      with pytest.raises(OSError, match="No space"):
        handler.close()
  assert capfd.readouterr().err == "moozi: /dev/full cannot be written: No space left on device\n"
  stream = open("/dev/full", "w")  # noqa: SIM115 - closing it would fail again
  try:
    for mode in ("plain", "live"):
      display = make_progress(mode, "one", 100, stream=stream)
      display.note("a line")
      display.update(env_steps=1, learner_steps=1, wall_s=1.0, scalars={})
      display.close()
  finally:
    with pytest.raises(OSError, match="No space"):
      stream.close()


def test_failed_change_of_the_configuration_leaves_the_run_as_it_was(tmp_path, monkeypatch):
  from moozi.core.errors import RunError

  def no_room(*_):
    raise NO_SPACE

  config = load_config(None, [f"run.dir={tmp_path}", "run.name=one"])
  run = RunDirectory.create(config)
  before = run.config_path.read_bytes()
  changed = run_directory.load_resumed_config(run, ["max_env_steps=7"])
  names = sorted(path.name for path in run.path.iterdir())
  for name in ("write_text", "save_config"):
    with monkeypatch.context() as patch:
      patch.setattr(run_directory, name, no_room)
      with pytest.raises(RunError, match="cannot be written: No space left on device; nothing has changed"):
        run_directory.save_resumed_config(run, changed, 5)
    assert run.config_path.read_bytes() == before
    assert sorted(path.name for path in run.path.iterdir()) == names
  # A second resume from the same step does not replace the settings with which the run came there.
  run_directory.save_resumed_config(run, changed, 5)
  run_directory.save_resumed_config(run, run_directory.load_resumed_config(run, ["max_env_steps=8"]), 5)
  assert (run.path / "config_until_000000005.yaml").read_bytes() == before


def test_a_start_on_a_full_disk_is_one_line(tmp_path, monkeypatch):
  from moozi.core.errors import RunError
  from tests.tiny_run import TINY

  def no_room(*_):
    raise NO_SPACE

  monkeypatch.setattr("moozi.training.start.Recorder", no_room)
  settings = [*TINY, "runtime=local", f"run.dir={tmp_path}", "logging.progress=none"]
  with pytest.raises(RunError, match="cannot be written: No space left on device"):
    moozi.train(load_config(None, settings))


def test_failed_start_leaves_nothing(tmp_path, monkeypatch):
  from moozi.core.errors import UserError

  def no_room(*_):
    raise NO_SPACE

  config = load_config(None, [f"run.dir={tmp_path / 'runs'}", "run.name=one"])
  mkdir = Path.mkdir

  def no_room_for_gifs(path, *args, **kwargs):
    return no_room() if path.name == "gifs" else mkdir(path, *args, **kwargs)

  for target, name, function in ((run_directory, "save_config", no_room), (Path, "mkdir", no_room_for_gifs)):
    with monkeypatch.context() as patch:
      patch.setattr(target, name, function)
      with pytest.raises(UserError, match="cannot be written: No space left"):
        RunDirectory.create(config)
    assert list((tmp_path / "runs").iterdir()) == []
