"""Tests that files of unknown size are read in bounded memory. The large files are sparse."""

import json
import os
import resource

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.flat_state import Snapshot
from moozi.io import state_file
from moozi.io.bounded_read import MAX_LINE_BYTES, open_bounded, read_lines
from moozi.io.card import read_card
from moozi.io.checkpoints import ResumeStore, load_checkpoint, save_checkpoint
from moozi.io.metrics import MetricsSink, read_metrics
from moozi.io.plain_data import read_json_object, read_yaml
from moozi.io.record_log import RecordLog
from moozi.io.timeline import SPANS, read_timeline

_HUGE = 10_000_000_000


@pytest.fixture(autouse=True)
def bounded_memory():
  """Limits the memory that a test may add to 1 GiB, so that reading a large file fails at once."""
  old = resource.getrlimit(resource.RLIMIT_AS)
  with open("/proc/self/statm") as f:
    used = int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
  resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), old[1]))
  yield
  resource.setrlimit(resource.RLIMIT_AS, old)


@pytest.fixture
def huge(tmp_path):
  def make(name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, _HUGE)
    return path

  return make


@pytest.mark.parametrize(
  ("name", "read"),
  [
    ("metrics.jsonl", read_metrics),
    ("metrics.jsonl", lambda path: MetricsSink(path, None)),
    (SPANS, lambda path: read_timeline(path.parent)),
    ("config.yaml", read_yaml),
    ("summary.json", read_json_object),
    ("card.json", read_card),
    ("games.jsonl", lambda path: RecordLog(path, {})),
  ],
)
def test_a_huge_file_is_refused(name, read, huge):
  with pytest.raises(
    (UserError, ValueError), match=r"10,000,000,000 bytes|larger than 1048576 bytes|altered or cut"
  ):
    read(huge(name))


def test_huge_arrays_are_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(state_file, "memory_bytes", lambda: 3000)
  state = {"x": np.zeros(4)}
  path = save_checkpoint(tmp_path, "small", state, {"env_steps": 1, "learner_steps": 1})
  assert load_checkpoint(path, state)["x"].shape == (4,)
  state = {"x": np.zeros(1000)}
  path = save_checkpoint(tmp_path, "large", state, {"env_steps": 1, "learner_steps": 1})
  with pytest.raises(UserError, match=r"8,\d+ bytes; at most 1,000 are read"):
    load_checkpoint(path, state)


def test_a_huge_block_is_refused(tmp_path):
  store = ResumeStore(tmp_path)
  meta = {"env_steps": 1, "learner_steps": 1}
  state = Snapshot(head={"a": 1}, generations=np.array([1]), blocks={0: {"x": np.zeros(4)}})
  store.save("step_1", state, meta)
  (block,) = (tmp_path / "blocks").iterdir()
  os.truncate(block, _HUGE * 1000)
  with pytest.raises(UserError, match=r"bytes; at most [\d,]+ are read"):
    ResumeStore(tmp_path).load("step_1")
  # A run that makes the same block again compares the sizes before it reads.
  ResumeStore(tmp_path).save("step_2", state, meta)
  assert block.stat().st_size < 1000


def test_a_long_line_is_refused(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"env_steps": 1}\n')
  os.truncate(path, 1 << 29)
  lines = read_lines(path)
  assert next(lines) == b'{"env_steps": 1}\n'
  with pytest.raises(ValueError, match=f"a line of more than {MAX_LINE_BYTES:,} bytes"):
    next(lines)
  with pytest.raises(UserError, match="cannot be read: a line of more than"):
    read_metrics(path)


def test_a_pipe_is_refused_without_a_writer(tmp_path):
  os.mkfifo(tmp_path / "pipe")
  with pytest.raises(ValueError, match="not a file"):
    open_bounded(tmp_path / "pipe", 100)


def test_a_refused_folder_is_closed(tmp_path, monkeypatch):
  opened, closed = [], []
  really_open, really_close = os.open, os.close
  monkeypatch.setattr(os, "open", lambda *args: opened.append(really_open(*args)) or opened[-1])
  monkeypatch.setattr(os, "close", lambda descriptor: closed.append(descriptor) or really_close(descriptor))
  with pytest.raises(IsADirectoryError, match="Is a directory"):
    open_bounded(tmp_path, 100)
  assert len(opened) == 1
  assert opened == closed


def test_resumed_metrics_keep_whole_lines_up_to_the_state(tmp_path):
  path = tmp_path / "metrics.jsonl"
  ticks = [{"env_steps": n, "learner_steps": 0, "wall_s": 0.0} for n in range(5)]
  path.write_text("".join(json.dumps(tick) + "\n" for tick in ticks) + '{"env_st')
  MetricsSink(path, None, keep=(2, 0, 0.0)).close()
  assert read_metrics(path) == ticks[:3]
