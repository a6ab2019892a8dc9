"""Tests of experiment trackers, with fakes and with the offline modes of the real libraries."""

import json
import os
import struct
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from moozi.core.errors import UserError
from moozi.io import trackers
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.io.trackers import MlflowTracker, Trackers, check_trackers
from tests.tiny_run import TINY


class Fake:
  """A tracker that records its calls, or fails if `broken` is set."""

  def __init__(self) -> None:
    self.received, self.broken, self.num_starts = [], False, 0

  def start(self, config, run):
    self.num_starts += 1
    if self.broken:
      raise ValueError("no\nserver")
    return self

  def write(self, scalars, env_steps):
    if self.broken:
      raise ValueError("no\nserver")
    self.received.append((scalars, env_steps))

  def finish(self, summary):
    self.received.append(summary)


@pytest.fixture
def fake(monkeypatch):
  out = Fake()
  monkeypatch.setattr(trackers, "TRACKERS", {"wandb": out.start})
  return out


def make(tmp_path, *overrides):
  config = load_config(None, [f"run.dir={tmp_path}", "run.name=one", "logging.wandb=true", *overrides])
  lines: list[str] = []
  return Trackers(config, RunDirectory(tmp_path / "one"), lines.append), lines


def test_tracker_gets_finite_numbers_and_the_summary(fake, tmp_path):
  opened, lines = make(tmp_path)
  opened.write({"a": 1.0, "b": float("nan"), "c": "text", "d": None, "e": True, "f": float("inf")}, 10)
  opened.close({"reason": "max_env_steps"})
  opened.close({"reason": "again"})
  assert fake.received == [({"a": 1.0}, 10), {"reason": "max_env_steps"}]
  assert lines == []


def test_failure_is_reported_once_and_tried_again(fake, tmp_path):
  opened, lines = make(tmp_path)
  fake.broken = True
  for step in range(3):
    opened.write({"a": 1.0}, step)
  opened.close(None)
  assert lines == ["wandb cannot be written: no server; the run continues and tries again"]
  assert fake.num_starts == 4


def test_tracker_that_hangs_delays_the_end_only_shortly(fake, tmp_path, monkeypatch):
  monkeypatch.setattr(trackers, "_CLOSE_S", 0.05)
  monkeypatch.setattr(trackers, "_MAX_PENDING", 2)
  release = threading.Event()
  monkeypatch.setattr(fake, "write", lambda scalars, env_steps: release.wait(30))
  opened, lines = make(tmp_path)
  for step in range(9):
    opened.write({"a": 1.0}, step)
  opened.close({})
  assert lines == ["trackers are not finished after 0 s; their last figures are lost"]
  release.set()


def test_no_thread_without_trackers(fake, tmp_path):
  before = set(threading.enumerate())
  opened, _ = make(tmp_path, "logging.wandb=false")
  opened.write({"a": 1.0}, 1)
  assert set(threading.enumerate()) <= before  # threads of earlier tests may end meanwhile
  opened.close({})
  assert fake.num_starts == 0


def test_missing_package_is_refused_before_the_run(monkeypatch):
  monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
  check_trackers(load_config(None))
  with pytest.raises(UserError, match=r"logging.mlflow=true: .* pip install 'moozi\[mlflow\]'"):
    check_trackers(load_config(None, ["logging.mlflow=true"]))


@pytest.mark.parametrize("text", ["not JSON", "[]", '{"wandb": "../../x"}', '{"wandb": 5}'])
def test_damaged_identifiers_are_ignored(tmp_path, text):
  run = RunDirectory(tmp_path)
  run.trackers_path.write_text(text)
  assert trackers._saved_id(run, "wandb") is None
  trackers._save_ids(run, {"wandb": "abcdef12"})
  assert trackers._saved_id(run, "wandb") == "abcdef12"


# Runs the command line; connections to other machines and name look-ups raise.
GUARD = """
import socket
def refuse(self, address, *args):
  if self.family != socket.AF_UNIX and not str(address[0]).startswith("127."):
    raise AssertionError(f"a connection to {address}")
  return connect(self, address, *args)
connect, socket.socket.connect = socket.socket.connect, refuse
def no_names(host, *args, **kwargs):
  if host not in ("localhost", "127.0.0.1", None):
    raise AssertionError(f"a look-up of {host}")
  return look_up(host, *args, **kwargs)
look_up, socket.getaddrinfo = socket.getaddrinfo, no_names
from moozi.cli import main
main()
"""


def train(tmp_path: Path, *words: str) -> Path:
  """Trains a tiny run in a process that cannot connect to other machines; returns the run's folder."""
  env = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "MLFLOW_"))}
  env["HOME"] = str(tmp_path / "home")
  command = [sys.executable, "-c", GUARD, "train", *words, "logging.progress=plain"]
  done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=500)
  assert done.returncode == 0, done.stderr[-3000:]
  assert "cannot be written" not in done.stderr, done.stderr[-3000:]
  assert "a connection to" not in done.stderr
  return tmp_path / "runs" / "one"


def start(tmp_path: Path, *overrides: str) -> Path:
  config = tmp_path / "config.yaml"
  config.write_text("runtime: local\n")
  quick = ("logging.period_s=0.01", "evaluation.gif=false", "logging.tensorboard=false")
  names = (f"run.dir={tmp_path / 'runs'}", "run.name=one")
  return train(tmp_path, str(config), *TINY, *quick, *names, *overrides)


def ticks_of(run: Path) -> list[dict]:
  return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def records_of(data: bytes) -> Iterator[bytes]:
  """Yields the records of a `.wandb` file: LevelDB's log format after a header of seven bytes."""
  at, record = 7, b""
  while at < len(data):
    if (left := 32768 - at % 32768) < 7:
      at += left
      continue
    _, size, kind = struct.unpack_from("<IHB", data, at)
    record += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (1, 4):  # a complete record, or the last part of one
      yield record
      record = b""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(tmp_path):
  pytest.importorskip("wandb", reason="needs the extra wandb")
  from wandb.proto.wandb_internal_pb2 import Record

  run = start(tmp_path, "logging.wandb=true")
  with RunDirectory.open(run).claim():
    pass  # the claim refuses run directories that contain links
  train(tmp_path, "--resume", str(run), "max_env_steps=384")
  files = sorted(run.parent.glob("wandb/offline-run-*/run-*.wandb"))
  assert len(files) == 2
  assert len({path.name for path in files}) == 1, "the two parts must have the same run id"
  steps, kinds, summary = [], set(), {}
  for path in files:
    for record in map(Record.FromString, records_of(path.read_bytes())):
      kinds.add(record.WhichOneof("record_type"))
      if record.HasField("history"):
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        steps.append(int(items.get("_step", record.history.step.num)))
      for item in record.summary.update:
        summary[item.key] = json.loads(item.value_json)
  assert set(steps) <= {tick["env_steps"] for tick in ticks_of(run)}
  assert len(set(steps)) > 3
  assert summary["reason"] == "max_env_steps"
  assert "env_steps" in summary
  assert not kinds & {"output", "output_raw", "stats", "files", "artifact"}
  text = "".join(
    path.read_bytes().decode("latin-1") for path in run.parent.glob("wandb/**/*") if path.is_file()
  )
  assert str(tmp_path / "home") not in text


def test_one_mlflow_run_after_a_failed_start(tmp_path, monkeypatch):
  """The server takes the run but not its settings; the next attempts continue the run."""
  made, written = [], []

  class Client:
    def __init__(self, address):
      pass

    def get_experiment_by_name(self, name):
      return types.SimpleNamespace(experiment_id="1")

    def create_run(self, experiment, run_name):
      made.append(run_name)
      return types.SimpleNamespace(info=types.SimpleNamespace(run_id="a" * 32))

    def update_run(self, run_id, status):
      assert (run_id, status) == ("a" * 32, "RUNNING")

    def log_batch(self, run_id, params):
      if len(made) + len(written) == 1:
        written.append([])
        raise ConnectionError("no answer")
      written[0] += params

  entities = types.SimpleNamespace(Metric=None, Param=lambda key, value: (key, value))
  for key in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_LOGGING_LEVEL"):
    monkeypatch.setenv(key, "true")  # the tracker would set them for the process
  monkeypatch.setitem(sys.modules, "mlflow", types.SimpleNamespace(MlflowClient=Client))
  monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
  config = load_config(None, [f"run.dir={tmp_path}", "run.name=one"])
  run = RunDirectory.create(config)
  with pytest.raises(ConnectionError):
    MlflowTracker(config, run)
  MlflowTracker(config, run)
  assert len(made) == 1
  assert ("seed", "0") in written[0]
  num_written = len(written[0])
  MlflowTracker(config, run)
  assert len(written[0]) == num_written


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # mlflow's own
def test_mlflow_in_a_local_database(tmp_path):
  pytest.importorskip("mlflow", reason="needs the extra mlflow")
  from mlflow import MlflowClient

  run = start(tmp_path, "logging.mlflow=true")
  train(tmp_path, "--resume", str(run), "max_env_steps=384")
  client = MlflowClient(f"sqlite:///{tmp_path / 'runs'}/mlflow.db")
  experiment = client.get_experiment_by_name("moozi")
  (found,) = client.search_runs([experiment.experiment_id])
  assert (found.info.run_name, found.info.status) == ("one", "FINISHED")
  assert found.data.params["learner.batch_size"] == "16"
  history = client.get_metric_history(found.info.run_id, "loss/total")
  wanted = {(tick["env_steps"], tick["loss/total"]) for tick in ticks_of(run) if tick.get("loss/total")}
  assert wanted <= {(metric.step, metric.value) for metric in history}
  assert found.data.metrics["summary/env_steps"] == 384
  assert found.data.tags["summary.reason"] == "max_env_steps"
  assert not (run / "mlflow").exists()
