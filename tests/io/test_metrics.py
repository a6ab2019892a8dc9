"""Tests of metrics.jsonl and of TensorBoard's files."""

import json
import struct
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from moozi.core.errors import UserError
from moozi.core.histogram import histogram_of
from moozi.io import metrics
from moozi.io.config import load_config
from moozi.io.metrics import MetricsSink, hyperparameters, read_metrics, thin_ticks
from moozi.io.plain_data import to_plain_json


def strict(line: str) -> dict:
  def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")

  return json.loads(line, parse_constant=refuse)


def events_in(folder: Path) -> list:
  """Returns the events of a TensorBoard folder; a record is length, CRC, data, CRC."""
  from tensorboardX.proto.event_pb2 import Event

  data = b"".join(p.read_bytes() for p in sorted(folder.glob("events*")))
  events, at = [], 0
  while at < len(data):
    (length,) = struct.unpack_from("<Q", data, at)
    events.append(Event.FromString(data[at + 12 : at + 12 + length]))
    at += 16 + length
  return events


def test_ticks_are_json_objects(tmp_path):
  with MetricsSink(tmp_path / "metrics.jsonl", None) as sink:
    sink.write(
      env_steps=np.int64(5),
      learner_steps=2,
      wall_s=1.23456,
      scalars={
        "loss/total": float("nan"),
        "a": np.float32("inf"),
        "b": jnp.float32(0.5),
        "c": np.int32(3),
        "d": True,
        "e": np.array([2.0]),
        "ü\n": -float("inf"),
      },
    )
    sink.write(env_steps=6, learner_steps=2, wall_s=2, scalars={})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()  # the file is flushed after each tick
  assert strict(lines[0]) == {
    "env_steps": 5,
    "learner_steps": 2,
    "wall_s": 1.235,
    "loss/total": None,
    "a": None,
    "b": 0.5,
    "c": 3,
    "d": 1,
    "e": 2.0,
    "ü\n": None,
  }
  assert strict(lines[1]) == {"env_steps": 6, "learner_steps": 2, "wall_s": 2.0}
  assert read_metrics(tmp_path / "metrics.jsonl") == [strict(line) for line in lines]


def test_non_scalars_are_refused(tmp_path):
  with MetricsSink(tmp_path / "metrics.jsonl", None) as sink:
    for scalars in ({"a": "x"}, {"a": np.zeros(2)}, {"a": None}, {"wall_s": 1.0}, {"a": 1j}):
      with pytest.raises(ValueError, match="scalars"):
        sink.write(env_steps=1, learner_steps=1, wall_s=1, scalars=scalars)
  assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_tensorboard_has_the_same_scalars(tmp_path):
  with MetricsSink(tmp_path / "metrics.jsonl", tmp_path / "tensorboard") as sink:
    sink.write(
      env_steps=7,
      learner_steps=2,
      wall_s=1.5,
      scalars={"loss/total": 0.25, "test/return_mean": np.float32(3)},
    )
    sink.write_gif("test/episode", b"GIF89a-not-really", (20, 30), env_steps=7)
  scalars, images = {}, []
  for event in events_in(tmp_path / "tensorboard"):
    for value in event.summary.value:
      assert event.step == 7
      if value.HasField("image"):
        images.append((value.tag, value.image.height, value.image.width, value.image.encoded_image_string))
      else:
        scalars[value.tag] = value.simple_value
  tick = read_metrics(tmp_path / "metrics.jsonl")[0]
  del tick["env_steps"]  # the step of the other scalars
  assert scalars == {name if "/" in name else f"system/{name}": value for name, value in tick.items()}
  assert images == [("test/episode", 20, 30, b"GIF89a-not-really")]


def test_tensorboard_shows_faults_above_zero_only(tmp_path):
  """TensorBoard sorts groups by name, so fault counts of 0 would come first."""
  with MetricsSink(tmp_path / "metrics.jsonl", tmp_path / "tensorboard") as sink:
    sink.write(
      env_steps=7, learner_steps=2, wall_s=1.5, scalars={"faults/env": 0, "faults/disk": 3, "a/b": 0}
    )
  tags = {value.tag for event in events_in(tmp_path / "tensorboard") for value in event.summary.value}
  assert tags == {"system/learner_steps", "system/wall_s", "faults/disk", "a/b"}
  assert read_metrics(tmp_path / "metrics.jsonl")[0]["faults/env"] == 0


def test_settings_are_hyperparameters(tmp_path):
  config = load_config(None, ["env.name=tiny:corridor", "env.kwargs.length=9", "learner.value_coef=0.5"])
  with MetricsSink(tmp_path / "metrics.jsonl", tmp_path / "tensorboard") as sink:
    sink.write_settings(config)
  # Reads the file with TensorBoard itself.
  reader = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
  found = {
    tag: HParamsPluginData.FromString(content)
    for tag, content in reader.PluginTagToContent("hparams").items()
  }
  experiment = found["_hparams_/experiment"].experiment
  assert [info.name.tag for info in experiment.metric_infos] == ["test/return_mean", "train/return_mean"]
  given = found["_hparams_/session_start_info"].session_start_info.hparams
  assert {info.name for info in experiment.hparam_infos} == set(given)
  assert given["env.name"].string_value == "tiny:corridor"
  assert given["env.kwargs.length"].number_value == 9
  assert given["learner.value_coef"].number_value == 0.5
  assert given["learner.scale_reward_loss"].WhichOneof("kind") == "bool_value"
  assert not any(name.startswith(("ppo.", "run.", "ray.", "logging.")) for name in given)
  ppo = hyperparameters(load_config(None, ["algorithm=ppo"]))
  assert any(name.startswith("ppo.") for name in ppo)
  assert not any(name.startswith(("network.", "planners.")) for name in ppo)


def test_histograms_go_to_tensorboard_only(tmp_path):
  found = {"replay/delta": histogram_of([0, 0, 1, 4]), "params/w": histogram_of([2.5])}
  with MetricsSink(tmp_path / "metrics.jsonl", tmp_path / "tensorboard") as sink:
    sink.write_histograms(found, env_steps=7)
  (event,) = [e for e in events_in(tmp_path / "tensorboard") if e.summary.value]
  assert event.step == 7
  delta, single = (value.histo for value in event.summary.value)
  assert [value.tag for value in event.summary.value] == list(found)
  assert (delta.min, delta.max, delta.num, delta.sum, delta.sum_squares) == (0, 4, 4, 5, 17)
  # A bucket's limit is its right edge; the left edge of the first is the minimum.
  assert len(delta.bucket) == len(delta.bucket_limit) == 40
  assert delta.bucket_limit[-1] == 4
  assert {i: n for i, n in enumerate(delta.bucket) if n} == {0: 2, 10: 1, 39: 1}
  assert (list(single.bucket_limit), list(single.bucket)) == ([2.5], [1])
  assert (tmp_path / "metrics.jsonl").read_text() == ""
  with MetricsSink(tmp_path / "other.jsonl", None) as sink:
    sink.write_histograms(found, env_steps=7)


def test_tensorboard_keeps_its_order_when_the_clock_goes_back(tmp_path, monkeypatch):
  """TensorBoard reads files in the order of their names: the file of a resumed run must be the last."""
  clock = [2_000_000_000.0]
  monkeypatch.setattr(metrics.time, "time", lambda: clock[0])
  for start, keep in ((2_000_000_000.0, None), (1_000_000_000.0, (2, 0, 1.0))):
    clock[0] = start
    sink = MetricsSink(tmp_path / "metrics.jsonl", tmp_path / "events", keep)
    for step in (1, 2, 3):
      clock[0] += (1.0, -500.0)[step == 2]
      sink.write(env_steps=step, learner_steps=0, wall_s=0.5, scalars={"a": 1.0})
    sink.close()
  events = events_in(tmp_path / "events")
  times = [event.wall_time for event in events]
  assert times[:4] == sorted(times[:4])
  assert times[4:] == sorted(times[4:])
  assert [event.step for event in events if event.HasField("session_log")] == [3]
  assert [event.step for event in events] == [0, 1, 2, 3, 0, 3, 1, 2, 3]


def test_reopened_file_appends_and_drops_a_cut_line(tmp_path):
  path = tmp_path / "metrics.jsonl"
  with MetricsSink(path, None) as sink:
    sink.write(env_steps=1, learner_steps=0, wall_s=1, scalars={})
  path.write_text(path.read_text() + '{"env_steps": 2, "lear')
  assert [t["env_steps"] for t in read_metrics(path)] == [1]
  with MetricsSink(path, None) as sink:
    sink.write(env_steps=3, learner_steps=0, wall_s=1, scalars={})
  assert [t["env_steps"] for t in read_metrics(path)] == [1, 3]


def test_malformed_metrics_are_refused(tmp_path):
  path = tmp_path / "metrics.jsonl"
  with pytest.raises(UserError, match=r"metrics\.jsonl: no such file; `moozi train` writes it"):
    read_metrics(path)
  for text in ("{}\nx\n{}\n", "[1]\n", "\x80\n"):
    path.write_text(text, "latin-1")
    with pytest.raises(UserError, match=r"line|cannot be read"):
      read_metrics(path)


def test_plain_json():
  data = {
    "a": (1, np.float32(0.5), [np.array([[1, 2]])]),
    3: jnp.nan,
    "b": None,
    "c": "x",
    "d": np.bool_(True),
  }
  assert to_plain_json(data) == {"a": [1, 0.5, [[[1, 2]]]], "3": None, "b": None, "c": "x", "d": True}
  for value in (object(), {1}, 1j, np.array([object()])):
    with pytest.raises(TypeError):
      to_plain_json(value)


def test_thin_ticks_keep_evaluations_and_the_last():
  ticks = [{"env_steps": i, "wall_s": i / 3, "loss/total": i / 3} for i in range(1000)]
  ticks[3] |= {"test/return_mean": 1 / 3, "test/at_env_steps": 2_801_664.0}
  kept = thin_ticks(ticks, 100, digits=4)
  steps = [tick["env_steps"] for tick in kept]
  assert {3, 999} <= set(steps)
  assert 90 <= len(steps) <= 102
  assert steps == sorted(steps)
  assert kept[steps.index(3)] == ticks[3]
  assert kept[-2]["loss/total"] == float(f"{kept[-2]['env_steps'] / 3:.4g}") != kept[-2]["wall_s"]
  assert thin_ticks(ticks[:2], 100, digits=4) == [ticks[0], ticks[1] | {"loss/total": 0.3333}]
