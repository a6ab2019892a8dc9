import json

import numpy as np
import pytest
from PIL import Image

from moozi.core.actor_report import Span, Stretch
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.io.timeline import SPANS, TimelineFile


@pytest.fixture
def bare(tmp_path):
  config = load_config(None, ["env.name=my_envs:make", f"run.dir={tmp_path}", "run.name=first"])
  return RunDirectory.create(config)


@pytest.fixture
def run(bare):
  """Returns a run with a timeline of 10 s, in which updates take 7 s and a training worker acts for 2 s."""
  file = TimelineFile(bare.timeline_path)
  updates = tuple(Span("update", 100.0 + t, 100.7 + t) for t in range(10))
  file.add({"parameter_server": Stretch(since_s=100.0, until_s=110.0, spans=updates)})
  segments = (Span("segment", 103.0, 105.0),)
  file.add({"training_worker_0": Stretch(since_s=102.0, until_s=110.0, spans=segments)})
  file.close()
  return bare.path


def test_timeline(run, cli):
  status, out, _ = cli("timeline", run)
  assert status == 0
  lines = [line.split() for line in out.splitlines()]
  assert out.startswith("first: 10.0 s")
  assert ["parameter_server", "30.0%", "update", "70.0%"] in lines
  assert ["training_worker_0", "75.0%", "segment", "25.0%"] in lines
  trace = json.loads((run / "timeline" / "timeline.json").read_text())
  assert len([e for e in trace["traceEvents"] if e["ph"] == "X"]) == 11
  assert trace["otherData"]["idle_share"] == {"parameter_server": 0.3, "training_worker_0": 0.75}
  with Image.open(run / "timeline" / "timeline.png") as picture:
    assert picture.width == 1400
  assert str(run / "timeline" / "timeline.png") in out
  # The command overwrites its earlier files.
  assert cli("timeline", run)[0] == 0


def test_part_of_timeline(run, cli, tmp_path):
  status, out, _ = cli("timeline", run, "--start", "2.5", "--seconds", "1", "--out", tmp_path / "out")
  assert status == 0
  assert out.startswith("first: 1.0 s from 2.5 s")
  lines = [line.split() for line in out.splitlines()]
  # In the one second shown, the worker acts for 0.5 s and updates take 0.2 + 0.5 s.
  assert ["parameter_server", "30.0%", "update", "70.0%"] in lines
  assert ["training_worker_0", "50.0%", "segment", "50.0%"] in lines
  trace = json.loads((tmp_path / "out" / "timeline.json").read_text())
  assert max(e["ts"] + e["dur"] for e in trace["traceEvents"] if e["ph"] == "X") == pytest.approx(1e6)
  with Image.open(tmp_path / "out" / "timeline.png") as part:
    assert np.array(part).std() > 0
  assert not (run / "timeline" / "timeline.png").exists()


def test_run_without_timeline(bare, refused):
  message = refused("timeline", bare.path)
  assert "has no timeline" in message
  assert "timeline.seconds" in message


def test_missing_run(tmp_path, refused):
  assert "no such folder" in refused("timeline", tmp_path / "nothing")


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--start", "-1"], "--start=-1: must be a number of seconds"),
    (["--start", "x"], "--start=x: must be a number of seconds"),
    (["--seconds", "nan"], "--seconds=nan: must be a number of seconds"),
    (["--start", "10"], "--start=10: shows nothing; the timeline is 10.0 s long"),
    (["--seconds", "0"], "--seconds=0"),
  ],
)
def test_bad_arguments(run, refused, arguments, message):
  assert message in refused("timeline", run, *arguments)


def test_invalid_timeline(run, refused):
  (run / "timeline" / SPANS).write_text("{}\n")
  assert "line 1 is not valid" in refused("timeline", run)


def test_links_are_not_followed(run, refused, cli, tmp_path):
  target = tmp_path / "target"
  target.write_text("mine")
  (run / "timeline" / "timeline.png").symlink_to(target)
  assert cli("timeline", run)[0] == 0
  assert target.read_text() == "mine"
  (run / "timeline").rename(tmp_path / "elsewhere")
  (run / "timeline").symlink_to(tmp_path / "elsewhere")
  assert "is a link" in refused("timeline", run)


def test_unwritable_output(run, refused, tmp_path):
  (tmp_path / "file").write_text("")
  assert "cannot be written" in refused("timeline", run, "--out", tmp_path / "file" / "out")
