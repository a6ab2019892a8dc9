"""Tests of untrusted run directories: reading them runs no code and writes no file outside of them.

`test_state_file.py` has the tests of single malformed files.
"""

import os
import pickle
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

from moozi import cli
from moozi.core.actor_report import Stretch
from moozi.core.config import Config, EnvConfig, RunConfig
from moozi.core.errors import RunError, UserError
from moozi.core.flat_state import Snapshot
from moozi.envs.registry import env_spec
from moozi.io.checkpoints import (
  BEST,
  CheckpointStore,
  ResumeStore,
  expected_of,
  find_checkpoint,
  list_checkpoints,
  load_checkpoint,
  path_of,
  read_checkpoint_info,
  save_checkpoint,
)
from moozi.io.config import load_config
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory
from moozi.io.timeline import SPANS, TimelineFile, read_timeline
from moozi.io.trajectory_folder import TrajectoryWriter, open_trajectories
from moozi.training.start_from import find_start
from tests.replay.replay_lanes import make_spec, random_lanes, segment_of


@pytest.fixture
def run(tmp_path) -> RunDirectory:
  """Returns a run directory with one file of each type."""
  config = Config(run=RunConfig(dir=str(tmp_path / "runs"), name="first"), env=EnvConfig(name="tiny:catch"))
  run = RunDirectory.create(config)
  meta = {"env_steps": 10, "learner_steps": 3} | expected_of(config, env_spec("tiny:catch"))
  save_checkpoint(run.checkpoints_path, "step_10", {"x": np.zeros(2)}, meta)
  run.metrics_path.write_text('{"env_steps": 1}\n')
  run.summary_path.write_text("{}")
  timeline = TimelineFile(run.timeline_path)
  timeline.add({"parameter_server": Stretch(since_s=0.0, until_s=1.0, spans=())})
  timeline.close()
  run.log_path("driver").write_text("")
  state = Snapshot(head={"y": 1}, generations=np.array([1]), blocks={0: {"frame": np.zeros(3)}})
  ResumeStore(run.resume_path).save("step_10", state, meta)
  spec = make_spec()
  writer = TrajectoryWriter(run.trajectories_path, spec)
  writer.append(segment_of(random_lanes(0, 3, 5, spec), 0, 5, spec), 0)
  writer.close()
  (run.checkpoints_path / BEST).write_text('{"name": "step_10", "bound": 0.5, "evaluation": {}}\n')
  (run.gifs_path / "a.gif").write_bytes(b"GIF89a")
  (run.path / "events.out").write_bytes(b"")
  return run


class Bomb:
  def __init__(self, marker: Path) -> None:
    self._marker = marker

  def __reduce__(self) -> tuple:
    return os.mkdir, (str(self._marker),)


def bombs(marker: Path) -> list[bytes]:
  """Returns file contents that would run code: pickles, also in NumPy and zip files, and YAML tags."""
  objects = np.empty(1, object)
  objects[0] = Bomb(marker)
  header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
  numpy_file = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + pickle.dumps(objects)
  return [
    *(pickle.dumps(Bomb(marker), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
    numpy_file,
    b"PK\x03\x04" + b"\0" * 26 + pickle.dumps(Bomb(marker)),
    f"!!python/object/apply:os.mkdir ['{marker}']\n".encode(),
    f"x: !!python/object/new:os.mkdir ['{marker}']\n".encode(),
  ]


READERS = {
  "config.yaml": [lambda run: run.load_config(), lambda run: load_config(run.config_path)],
  "metrics.jsonl": [lambda run: read_metrics(run.metrics_path)],
  "summary.json": [lambda run: run.read_summary()],
  f"timeline/{SPANS}": [lambda run: read_timeline(run.timeline_path)],
  "checkpoints/step_10.safetensors": [
    lambda run: read_checkpoint_info(path_of(run.checkpoints_path, "step_10")),
    lambda run: find_checkpoint(run.checkpoints_path),
    lambda run: find_checkpoint(run.checkpoints_path, "step_10"),
    lambda run: find_start(str(run.path)),
    lambda run: find_start(str(path_of(run.checkpoints_path, "step_10"))),
    lambda run: load_checkpoint(path_of(run.checkpoints_path, "step_10"), {"x": np.zeros(2)}),
  ],
  f"checkpoints/{BEST}": [lambda run: find_checkpoint(run.checkpoints_path, "best")],
  "resume/step_10.safetensors": [lambda run: ResumeStore(run.resume_path).load("step_10")],
  "resume/blocks/*": [lambda run: ResumeStore(run.resume_path).load("step_10")],
  "trajectories/*.traj": [lambda run: list(open_trajectories(run.path).read())],
}


def place(run: RunDirectory, file: str) -> Path:
  """Returns the path of the only file that matches a pattern."""
  (path,) = run.path.glob(file)
  return path


def test_sound_run_is_readable(run):
  for readers in READERS.values():
    for read in readers:
      read(run)


@pytest.mark.parametrize("file", READERS)
def test_pickles_are_refused_and_do_not_run(run, tmp_path, file):
  marker = tmp_path / "marker"
  for bomb in bombs(marker):
    # The newline is needed because the reader of metrics.jsonl skips an incomplete last line.
    place(run, file).write_bytes(bomb + b"\n")
    for read in READERS[file]:
      with pytest.raises(UserError) as caught:
        read(run)
      assert "\n" not in str(caught.value)
  assert not marker.exists()


@pytest.mark.parametrize("file", READERS)
def test_pipes_and_devices_do_not_block(run, file):
  path = place(run, file)
  path.unlink()
  os.mkfifo(path)
  for read in READERS[file]:
    with pytest.raises(UserError):
      read(run)
  path.unlink()
  path.symlink_to("/dev/zero")
  for read in READERS[file]:
    with pytest.raises(UserError):
      read(run)


D = "0" * 64


@pytest.mark.parametrize(
  "listing",
  [
    {},
    {"blocks": [], "generations": [1]},
    {"blocks": {}, "generations": [1]},
    {"blocks": {"0": None}, "generations": [1]},
    {"blocks": {"0": ["x"]}, "generations": [1]},
    {"blocks": {"0": "../../secret"}, "generations": [1]},
    {"blocks": {"0": "/" * 64}, "generations": [1]},
    {"blocks": {"²": D}, "generations": [1]},
    {"blocks": {"0": D}, "generations": None},
    {"blocks": {"0": D}, "generations": [None]},
    {"blocks": {"0": D}, "generations": [1 << 64]},
    {"blocks": {"0": D}, "generations": [-1]},
    {"blocks": {"7": D}, "generations": [1]},
    {"blocks": {}, "generations": [0] * 100_000},
  ],
)
def test_malformed_block_list_is_refused(run, listing):
  """The list is checked even if the file's checksums are valid."""
  save_checkpoint(run.resume_path, "step_10", {"y": 1}, {"env_steps": 10, "learner_steps": 3} | listing)
  store = ResumeStore(run.resume_path)
  with pytest.raises(UserError, match="not a resume state") as caught:
    store.load("step_10")
  assert "\n" not in str(caught.value)
  store.keep({"step_10"})


def test_number_too_large_for_a_float_is_refused(run):
  line = f'{{"actor": "learner", "since_s": {10**400}, "until_s": 1.0, "spans": []}}\n'
  (run.timeline_path / SPANS).write_text(line)
  with pytest.raises(UserError, match="line 1 is not valid: OverflowError"):
    read_timeline(run.timeline_path)


def test_commands_report_in_one_line(run, tmp_path, capfd):
  marker = tmp_path / "marker"
  for file in ("config.yaml", "checkpoints/step_10.safetensors"):
    whole = (run.path / file).read_bytes()
    for bomb in bombs(marker)[-3:]:
      (run.path / file).write_bytes(bomb)
      with pytest.raises(SystemExit) as caught:
        cli.main(["evaluate", str(run.path)])
      _, err = capfd.readouterr()
      assert caught.value.code == 2
      assert err.startswith("moozi: error: ")
      assert err.count("\n") == 1
    (run.path / file).write_bytes(whole)
  assert not marker.exists()


def test_cut_last_line_of_metrics_is_skipped(run, tmp_path):
  with open(run.metrics_path, "ab") as file:
    file.write(b"cos\nmkdir\n"[:3])
  assert read_metrics(run.metrics_path) == [{"env_steps": 1}]


# --- writing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  "name",
  [
    "checkpoints",
    "gifs",
    "logs",
    "config.yaml",
    "metrics.jsonl",
    "summary.json",
    "logs/driver.log",
    "checkpoints/step_10.safetensors",
    "gifs/a.gif",
    "events.out",
    ".config.yaml.1.tmp",
  ],
)
def test_links_are_refused_for_writing(run, tmp_path, name):
  path, outside = run.path / name, tmp_path / "outside"
  if path.exists():
    path.rename(outside)
  path.symlink_to(outside)
  with pytest.raises(RunError, match="must not contain links") as caught:
    run.claim()
  assert str(path) in str(caught.value)
  # Links within the run directory are also refused.
  path.unlink()
  path.symlink_to("config.yaml")
  with pytest.raises(RunError, match=r"a link to 'config\.yaml'"):
    run.claim()


def test_pipes_are_refused_for_writing(run):
  os.mkfifo(run.path / "logs" / "pipe")
  with pytest.raises(RunError, match="neither a file nor a folder"):
    run.claim()


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "logs/driver.log", "lock"])
def test_hard_links_are_refused_for_writing(run, tmp_path, name):
  path = run.path / name
  path.touch()
  os.link(path, tmp_path / "outside")
  with pytest.raises(RunError, match=r"has another name \(a hard link\).*cp -r"):
    run.claim()
  shutil.copytree(run.path, tmp_path / "copy")
  RunDirectory.open(tmp_path / "copy").claim().close()


def test_link_to_a_run_is_accepted(run, tmp_path):
  (tmp_path / "latest").symlink_to(run.path)
  RunDirectory.open(tmp_path / "latest").claim().close()


def test_train_writes_nothing_into_a_refused_run(cli, run, tmp_path):
  outside = tmp_path / "outside"
  outside.mkdir()
  (run.path / "logs" / "driver.log").unlink()
  (run.path / "logs").rmdir()
  (run.path / "logs").symlink_to(outside)
  before = sorted(p for p in run.path.rglob("*"))
  status, out, err = cli("train", "--resume", run.path, "max_env_steps=1000000")
  assert (status, out) == (2, "")
  assert "links" in err
  assert len(err.splitlines()) == 1
  assert list(outside.iterdir()) == []
  assert sorted(p for p in run.path.rglob("*")) == before


def test_pruning_does_not_follow_links(run, tmp_path):
  """Pruning ignores checkpoints that are links, and never removes a link's target."""
  elsewhere = tmp_path / "elsewhere"
  path_of(run.checkpoints_path, "step_10").rename(elsewhere)
  path_of(run.checkpoints_path, "step_10").symlink_to(elsewhere)
  assert [c.name for c in list_checkpoints(run.checkpoints_path)] == ["step_10"]
  config = Config().checkpoint.model_copy(update={"keep_last": 1, "milestones_env_steps": None})
  store = CheckpointStore(run.checkpoints_path, config)
  for step in (20, 30):
    store.save({"x": np.zeros(2)}, {"env_steps": step, "learner_steps": 3}, 1.0)
  assert elsewhere.is_file()


def test_files_are_not_world_writable(run):
  assert not stat.S_IMODE(run.config_path.stat().st_mode) & stat.S_IWOTH
  with run.claim():
    assert not stat.S_IMODE((run.path / "lock").stat().st_mode) & stat.S_IWOTH
