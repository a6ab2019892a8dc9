"""Tests of the files that the recorder writes for a list of events."""

import contextlib
import dataclasses
import json
import re
import threading
import time
import types

import numpy as np
import pytest
from PIL import Image

from moozi.core.actor_report import ActorReport, Span, Stretch
from moozi.core.config import Config
from moozi.core.histogram import histogram_of
from moozi.core.search_record import PlayedEpisode
from moozi.core.spec import EnvSpec
from moozi.evaluation.episodes import EvaluationResult
from moozi.io.checkpoints import code_commit, list_checkpoints
from moozi.io.config import config_to_dict, load_config
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import SUMMARY_KEYS, RunDirectory
from moozi.io.timeline import read_timeline
from moozi.io.trajectory_folder import open_trajectories
from moozi.run.events import (
  Acted,
  ActorReports,
  Collected,
  Evaluated,
  Faulted,
  Finished,
  Histograms,
  Started,
  StateReady,
  Updated,
)
from moozi.run.state import RunState
from moozi.training import gif_writer
from moozi.training.recorder import Recorder, phase_notes
from moozi.training.resume import Resumed
from moozi.vis.evaluation_gifs import write_episode
from tests.replay.replay_lanes import make_spec, random_lanes, segment_of

SPEC = EnvSpec(
  name="tiny:catch",
  frame_shape=(3, 3, 1),
  frame_dtype="bool",
  num_env_actions=2,
  action_names=("left", "right"),
)


class Display:
  def __init__(self):
    self.notes, self.ticks, self.is_closed = [], [], False

  def note(self, text):
    self.notes.append(text)

  def update(self, **tick):
    self.ticks.append(tick)

  def close(self):
    self.is_closed = True


def acted(env_steps, returns=()):
  return Acted(
    env_steps=env_steps,
    learner_steps=0,
    metrics={"search/root_value": 2.0},
    episode_returns=np.array(returns, float),
    episode_lengths=np.full(len(returns), 9.0),
    staleness=3.0,
  )


def played(num_frames, pictures=None):
  zeros = np.zeros(num_frames, np.float32)
  return PlayedEpisode(
    index=0,
    seat=None,
    length=num_frames - 1,
    frames=np.zeros((num_frames, 3, 3, 1), bool),
    pictures=pictures,
    to_play=zeros.astype(np.int32),
    actions=np.array([1 + i % 2 for i in range(num_frames - 1)] + [0], np.int32),
    rewards=zeros,
    totals=zeros.astype(np.float64),
    root_values=zeros,
    action_probs=np.full((num_frames, 3), 1 / 3, np.float32),
  )


def evaluated(env_steps, is_final=False, pictures=None):
  episode = played(4, pictures)
  result = EvaluationResult(
    returns=np.array([1.0, 3.0]),
    lengths=np.array([3, 3]),
    num_distinct=2,
    version=7,
    env_steps=env_steps,
    episode=episode,
  )
  return Evaluated(env_steps=env_steps, learner_steps=8, result=result, is_final=is_final)


@pytest.fixture
def begin(tmp_path):
  """Returns a function that creates a run with a tick after each event: (run, recorder, display)."""

  def begin(*overrides, spec=SPEC, name="one", start=0.0, resumed=None):
    places = [f"run.dir={tmp_path}", f"run.name={name}"]
    config = load_config(None, [*places, "logging.tensorboard=false", "logging.period_s=1e-9", *overrides])
    run, display = RunDirectory.create(config), Display()
    return run, Recorder(run.load_config(), spec, run, display, start, resumed), display

  return begin


def resumed_with(kept):
  """Returns what a resumed run's recorder continues from."""
  return Resumed(state=None, recorder=kept, store=None)


@pytest.fixture
def recorded(begin):
  """Records a few events; returns the run directory, the display and the recorder."""
  run, recorder, display = begin("logging.tensorboard=true")
  state = RunState(training={"w": np.arange(3, dtype=np.float32)})
  events = [
    Started(env_steps=0, learner_steps=0, message="test"),
    acted(100, [1.0, 2.0]),
    Updated(env_steps=100, learner_steps=8, metrics={"loss/total": 0.5}, num_samples=400, sample_reuse=4.0),
    StateReady(env_steps=100, learner_steps=8, state=state, is_final=False),
    evaluated(100),
    acted(200, [6.0]),
    Finished(env_steps=200, learner_steps=8, reason="max_env_steps", sample_reuse=4.0),
  ]
  for event in events:
    recorder.observe(event)
  recorder.close()
  recorder.close()
  return run, display, recorder


def test_every_scalar_is_in_the_lines(recorded):
  run, _, _ = recorded
  lines = read_metrics(run.metrics_path)
  names = set().union(*lines)
  assert {
    "search/root_value",
    "loss/total",
    "train/sample_reuse",
    "train/staleness",
    "train/return_mean",
  } <= names
  assert lines[-1]["train/return_mean"] == 3.0
  assert lines[-1]["env_steps"] == 200


def test_evaluation_is_in_one_line(recorded):
  run, _, _ = recorded
  lines = [line for line in read_metrics(run.metrics_path) if "test/return_mean" in line]
  assert [(line["test/return_mean"], line["test/at_env_steps"]) for line in lines] == [(2.0, 100)]


def test_summary(recorded):
  run, _, recorder = recorded
  summary = json.loads(run.summary_path.read_text())
  assert set(SUMMARY_KEYS) <= set(summary)
  assert summary == json.loads(json.dumps(recorder.summary))
  assert (summary["test_return_mean"], summary["test_return_std"], summary["test_episodes"]) == (2.0, 1.0, 2)
  assert (summary["staleness_mean"], summary["sample_reuse"]) == (3.0, 4.0)


def test_checkpoint_metadata(recorded):
  run, _, _ = recorded
  (checkpoint,) = list_checkpoints(run.checkpoints_path)
  assert checkpoint.env_steps == 100
  assert checkpoint.meta["spec"]["name"] == "tiny:catch"
  network = Config().network.model_dump(mode="json")
  del network["normalize_observations"]  # only networks with statistics of observations have it
  assert checkpoint.meta["network"] == network
  assert checkpoint.meta["config"] == config_to_dict(run.load_config())
  assert checkpoint.meta["config"]["logging"]["period_s"] == 1e-9
  assert checkpoint.meta.get("commit") == code_commit()


def test_pictures_and_display(recorded):
  run, display, _ = recorded
  assert [path.name for path in run.gifs_path.iterdir()] == ["step_000000100.gif"]
  assert any("return 2.00 ± 1.00 over 2 episodes" in note for note in display.notes)
  assert display.ticks[-1]["env_steps"] == 200
  assert display.is_closed


def test_gif_of_the_environments_pictures(begin):
  sizes = []
  for name, pictures in (("frames", None), ("pictures", np.zeros((4, 200, 50, 3), np.uint8))):
    run, recorder, _ = begin(name=name)
    recorder.observe(evaluated(100, pictures=pictures))
    recorder.close()
    with Image.open(next(run.gifs_path.iterdir())) as gif:
      sizes.append((gif.width, gif.n_frames))
  # Frames of 3 by 3 are drawn 240 pixels wide. Pictures 50 pixels wide keep their size, so their GIF is 190
  # pixels narrower.
  assert sizes == [(sizes[1][0] + 190, 4), (sizes[1][0], 4)]


def test_gif_of_tiles(begin):
  run, recorder, _ = begin("logging.tensorboard=true")
  event = evaluated(100)
  tiles = (played(2), played(5))
  event = dataclasses.replace(event, result=dataclasses.replace(event.result, tiles=tiles))
  recorder.observe(event)
  recorder.close()
  with Image.open(run.gifs_path / "step_000000100_tiles.gif") as gif:
    assert gif.n_frames > 1
    assert gif.size == (6 + 2 * (126 + 6), 6 + 126 + 18 + 6 + 18)  # a line below says what the numbers are
  assert b"test/tiles" in next(run.path.glob("events.out.*")).read_bytes()


def test_gifs_do_not_block(begin, monkeypatch):
  may_draw = threading.Event()

  def draw(*args):
    assert may_draw.wait(60.0)
    return write_episode(*args)

  monkeypatch.setattr(gif_writer, "write_episode", draw)
  run, recorder, _ = begin("logging.tensorboard=true")
  recorder.observe(evaluated(100))
  recorder.observe(acted(200))
  assert not list(run.gifs_path.iterdir())
  may_draw.set()
  recorder.observe(Finished(env_steps=200, learner_steps=0, reason="stopped", sample_reuse=0.0))
  assert [path.name for path in run.gifs_path.iterdir()] == ["step_000000100.gif"]
  recorder.close()
  assert b"test/episode" in next(run.path.glob("events.out.*")).read_bytes()


def test_curves_are_complete_at_a_checkpoint(begin):
  """All counts before a checkpoint must be in a tick, because a resumed run starts its ticks after it."""
  run, recorder, _ = begin("logging.period_s=1e9", start=time.monotonic())
  recorder.observe(acted(100, [4.0]))
  counters = {"env_steps": 100, "learner_steps": 0}
  state = RunState(training={"w": np.zeros(1, np.float32)}, progress={"wall_s": 0.0})
  recorder.observe(StateReady(**counters, state=state, is_final=False))
  recorder.observe(acted(200, [6.0]))
  assert [line["env_steps"] for line in read_metrics(run.metrics_path)] == [100]
  counters["env_steps"] = 200
  recorder.observe(StateReady(**counters, state=state, is_final=True))
  recorder.observe(Finished(**counters, reason="stopped", sample_reuse=0.0))
  recorder.close()
  lines = read_metrics(run.metrics_path)
  assert [(line["env_steps"], line["train/episodes"]) for line in lines] == [(100, 1), (200, 1)]
  assert [line["train/return_mean"] for line in lines] == [4.0, 5.0]


@pytest.mark.parametrize("best_bound", [None, 0.5])
def test_state_that_arrives_late_sets_no_curve_back(begin, best_bound):
  """A state is made at a step, and arrives when the learner has answered, which may be compiling."""
  run, recorder, _ = begin(start=time.monotonic())
  recorder.observe(acted(200))
  state = RunState(training={"w": np.zeros(1, np.float32)}, progress={"wall_s": 0.0})
  recorder.observe(
    StateReady(env_steps=100, learner_steps=0, state=state, is_final=False, best_bound=best_bound)
  )
  recorder.observe(acted(300))
  recorder.close()
  assert [line["env_steps"] for line in read_metrics(run.metrics_path)] == [200, 300]


def test_summary_without_evaluation(begin):
  run, recorder, _ = begin()
  recorder.observe(Finished(env_steps=0, learner_steps=0, reason="stopped", sample_reuse=0.0))
  recorder.close()
  summary = json.loads(run.summary_path.read_text())
  assert summary["test_return_mean"] is None
  assert summary["test_episodes"] == 0


def test_summary_of_a_resumed_run_has_the_evaluation_before(begin):
  """A run that is stopped, resumed, and stopped before an evaluation keeps its last figures."""
  run, recorder, _ = begin()
  recorder.observe(evaluated(64))
  state = recorder._get_state(StateReady(env_steps=64, learner_steps=1, state=None))
  recorder.close()
  recorder = Recorder(run.load_config(), SPEC, run, Display(), 0.0, resumed_with(state))
  recorder.observe(Finished(env_steps=70, learner_steps=1, reason="stopped", sample_reuse=0.0))
  recorder.close()
  found = [
    recorder.summary[f"test_{name}"] for name in ("return_mean", "return_std", "episodes", "at_env_steps")
  ]
  assert found == [2.0, 1.0, 2, 64]


@pytest.mark.parametrize("num_steps", [100, 200])
def test_end_of_a_run_has_two_ticks_and_no_rate_of_zero(begin, num_steps):
  """The updates after the last step, and the final evaluation, make no environment steps."""
  run, recorder, _ = begin(f"max_env_steps={num_steps}", start=time.monotonic() - 10)
  now = {"env_steps": 100, "learner_steps": 8}
  report = {"testing_worker": ActorReport(elapsed_s=1.0, busy_s=0.5, memory_mib=1.0)}
  state = RunState(training={"w": np.zeros(1, np.float32)}, progress={"wall_s": 0.0})
  with contextlib.closing(recorder):
    recorder.observe(acted(100, [4.0]))
    recorder.observe(Updated(**now, metrics={"loss/total": 1.0}, num_samples=32, sample_reuse=4.0))
    recorder.observe(StateReady(**now, state=state, is_final=True))
    recorder.observe(ActorReports(**now, reports=report))
    recorder.observe(evaluated(100, is_final=True))
    recorder.observe(StateReady(**now, state=state, is_final=False))
    recorder.observe(ActorReports(**now, reports=report))
    recorder.observe(Finished(**now, reason="max_env_steps", sample_reuse=4.0))
  lines = read_metrics(run.metrics_path)
  assert [line.get("test/return_mean") for line in lines] == [None, None, 2.0]
  rates = [{name for name in line if name.endswith("_per_s")} for line in lines]
  learning = {"system/updates_per_s", "system/samples_per_s"}
  assert rates[1] == learning | ({"system/env_steps_per_s"} if num_steps == 200 else set())
  assert (rates[0], rates[2]) == (learning | {"system/env_steps_per_s"}, set())
  assert lines[1]["system/updates_per_s"] > 0


def test_rates_of_a_run_that_starts_from_a_checkpoint(begin):
  """Such a run keeps the checkpoint's learner step, and begins at environment step 0."""
  state = RunState(training=types.SimpleNamespace(learner_step=np.int32(10**9)))
  resumed = Resumed(state=state, recorder=None, store=None)
  run, recorder, display = begin(start=time.monotonic() - 10, resumed=resumed)
  with contextlib.closing(recorder):
    recorder.observe(dataclasses.replace(acted(60), learner_steps=10**9))
    recorder.observe(
      Updated(env_steps=100, learner_steps=10**9 + 8, metrics={}, num_samples=400, sample_reuse=4.0)
    )
  assert all(tick["system/updates_per_s"] < 1e8 for tick in read_metrics(run.metrics_path))
  assert any("filling replay: 60 of" in note for note in display.notes)


def test_faults_are_summed_and_logged(begin, caplog):
  run, recorder, display = begin()
  counters = {"env_steps": 1, "learner_steps": 2}

  def updated(count, loss):
    metrics = {
      "loss/total": loss,
      "faults/skipped_updates": float(count),
      "faults/not_finite_value": float(count),
    }
    return Updated(**counters, metrics=metrics, num_samples=4, sample_reuse=1.0)

  recorder.observe(updated(2, 0.5))
  recorder.observe(updated(0, float("nan")))
  recorder.observe(updated(3, 0.5))
  refused = Faulted(
    **counters, counts={"refused_segments": 1, "lost_steps": 32}, message="worker 3 sent rubbish"
  )
  recorder.observe(refused)
  recorder.observe(Finished(**counters, reason="stopped", sample_reuse=0.0))
  recorder.close()
  lines = read_metrics(run.metrics_path)
  assert [line["faults/skipped_updates"] for line in lines] == [2, 2, 5, 5, 5]
  assert [line["faults/lost_steps"] for line in lines] == [0, 0, 0, 32, 32]
  assert lines[-1]["faults/not_finite_value"] == 5
  assert [line.get("loss/total") for line in lines[:3]] == [0.5, None, 0.5]
  faults = json.loads(run.summary_path.read_text())["faults"]
  assert (faults["skipped_updates"], faults["refused_segments"], faults["env_errors"]) == (5, 1, 0)
  assert len([note for note in display.notes if "faults/skipped_updates" in note]) == 1
  assert "worker 3 sent rubbish" in caplog.text


def test_trajectories_are_on_disk_before_the_checkpoint(begin, monkeypatch):
  spec = make_spec()
  segment = segment_of(random_lanes(0, 3, 5, spec), 0, 5, spec)
  run, recorder, _ = begin("trajectories.save=true", spec=spec)
  save, found = recorder._saver.save, []

  def look_first(*args):
    found.append(open_trajectories(run.path).num_steps)
    save(*args)

  monkeypatch.setattr(recorder._saver, "save", look_first)
  recorder.observe(Collected(env_steps=15, learner_steps=0, segment=segment, first_lane=3, follows=True))
  recorder.observe(
    StateReady(env_steps=15, learner_steps=0, state=RunState(training={"w": np.zeros(2)}), is_final=False)
  )
  later = segment_of(random_lanes(0, 3, 7, spec), 5, 7, spec)
  recorder.observe(Collected(env_steps=21, learner_steps=0, segment=later, first_lane=3, follows=True))
  recorder.close()
  assert found == [15]
  assert open_trajectories(run.path, spec).lane_steps == {3: 7, 4: 7, 5: 7}


def test_actions_are_steps_without_last_frames(begin):
  """With episodes of one action half of the steps are resets. A resumed run continues the count."""
  run, recorder, _ = begin()
  for env_steps, last_share in ((64, 0.5), (192, 0.5), (256, 0.25)):
    recorder.observe(dataclasses.replace(acted(env_steps), metrics={"train/last_share": last_share}))
  kept = recorder._get_state(StateReady(env_steps=256, learner_steps=0, state=RunState(training={})))
  recorder.close()
  assert [line["train/actions"] for line in read_metrics(run.metrics_path)] == [32, 96, 144]
  recorder = Recorder(run.load_config(), SPEC, run, Display(), 0.0, resumed_with(kept))
  recorder.observe(dataclasses.replace(acted(260), metrics={"train/last_share": 0.0}))
  recorder.close()
  assert read_metrics(run.metrics_path)[-1]["train/actions"] == 148


def test_the_start_of_a_resumed_run_counts_from_its_resumption(begin):
  run, recorder, _ = begin()
  kept = recorder._get_state(StateReady(env_steps=64, learner_steps=0, state=RunState(training={})))
  recorder.close()
  kept["wall_s"], display = 7200.0, Display()
  now = time.monotonic()
  recorder = Recorder(run.load_config(), SPEC, run, display, now - 7200.0, resumed_with(kept))
  recorder.observe(Started(env_steps=64, learner_steps=0, message="test"))
  recorder.observe(acted(128))
  recorder.close()
  (started,) = [note for note in display.notes if note.startswith("acting starts")]
  (first,) = [note for note in display.notes if note.endswith("acted the first segment")]
  for note in (started, first):
    seconds = float(re.search(r"(\d+) s", note).group(1))
    assert seconds <= time.monotonic() - now + 1


def test_collapse_is_shown_once(begin):
  _, recorder, display = begin()
  for step, cosine in ((499, 1.0), (500, 0.94), (600, 0.9995), (700, 0.9999)):
    metrics = {"state/cosine": cosine}
    recorder.observe(
      Updated(env_steps=step, learner_steps=step, metrics=metrics, num_samples=4, sample_reuse=1.0)
    )
  recorder.close()
  (note,) = [note for note in display.notes if "hidden states" in note]
  assert "mean cosine is 0.9995" in note


def test_resume_drops_steps_after_the_checkpoint(begin):
  spec = make_spec()
  steps = random_lanes(0, 3, 12, spec)
  run, recorder, _ = begin("trajectories.save=true", spec=spec)
  recorder.observe(
    Collected(
      env_steps=15, learner_steps=0, segment=segment_of(steps, 0, 5, spec), first_lane=0, follows=True
    )
  )
  state = StateReady(env_steps=15, learner_steps=0, state=RunState(training={"w": np.zeros(2)}))
  recorder.observe(state)
  kept = recorder._get_state(state)
  recorder.observe(
    Collected(
      env_steps=36, learner_steps=0, segment=segment_of(steps, 5, 12, spec), first_lane=0, follows=True
    )
  )
  recorder.close()
  assert open_trajectories(run.path).num_steps == 36
  again = Recorder(run.load_config(), spec, run, Display(), 0.0, resumed_with(kept))
  assert open_trajectories(run.path).num_steps == 15
  again.observe(
    Collected(
      env_steps=24, learner_steps=0, segment=segment_of(steps, 5, 8, spec), first_lane=0, follows=True
    )
  )
  again.close()
  assert open_trajectories(run.path).lane_steps == {0: 8, 1: 8, 2: 8}


def test_resume_keeps_steps_that_were_written_before_the_checkpoint(begin):
  """With Ray, segments of later steps may arrive and be stored before the checkpoint is complete."""
  spec = make_spec()
  steps = random_lanes(0, 3, 12, spec)
  run, recorder, _ = begin("trajectories.save=true", spec=spec)

  def collected(env_steps, first, stop):
    segment = segment_of(steps, first, stop, spec)
    return Collected(env_steps=env_steps, learner_steps=0, segment=segment, first_lane=0, follows=True)

  recorder.observe(collected(21, 0, 5))
  recorder.observe(collected(21, 5, 7))
  state = StateReady(env_steps=15, learner_steps=0, state=RunState(training={"w": np.zeros(2)}))
  recorder.observe(state)
  kept = recorder._get_state(state)
  recorder.observe(collected(30, 7, 9))
  recorder.close()
  before = {name: x for name, x in kept.items() if not name.startswith("trajectories/")}
  again = Recorder(run.load_config(), spec, run, Display(), 0.0, resumed_with(kept))
  assert open_trajectories(run.path).num_steps == 21
  again.observe(collected(21, 7, 12))
  again.close()
  assert open_trajectories(run.path).lane_steps == {0: 12, 1: 12, 2: 12}
  # A run that saved no trajectories before has no positions of lanes.
  Recorder(run.load_config(), spec, run, Display(), 0.0, resumed_with(before)).close()
  assert not list(run.trajectories_path.iterdir())


def test_no_trajectories_by_default(recorded):
  run, _, _ = recorded
  assert not run.trajectories_path.exists()


def test_work_metrics_and_timeline(begin):
  run, recorder, _ = begin("logging.tensorboard=true")
  counters = {"env_steps": 1, "learner_steps": 2}
  stretch = Stretch(since_s=100.0, until_s=104.0, spans=(Span("update", 101.0, 104.0),))
  report = ActorReport(elapsed_s=4.0, busy_s=3.0, memory_mib=1000.0, stretch=stretch)
  recorder.observe(ActorReports(**counters, reports={"parameter_server": report}))
  idle = ActorReport(elapsed_s=4.0, busy_s=0.0, memory_mib=900.0)
  recorder.observe(ActorReports(**counters, reports={"parameter_server": idle}))
  recorder.observe(Histograms(**counters, histograms={"replay/delta": histogram_of([1.0, 2.0])}))
  assert read_timeline(run.timeline_path) == {"parameter_server": [stretch]}
  recorder.close()
  lines = read_metrics(run.metrics_path)
  assert [line.get("system/busy_share/parameter_server") for line in lines] == [0.75, 0.0, None]
  assert [line["system/memory_mib/parameter_server"] for line in lines] == [1000.0, 900.0, 900.0]
  for line in lines:
    parts = line["system/memory_mib/driver"], line["system/memory_mib/parameter_server"]
    assert line["system/memory_mib"] == pytest.approx(sum(parts))
  assert b"replay/delta" in next(run.path.glob("events.out.*")).read_bytes()
  assert "replay/delta" not in run.metrics_path.read_text()


def test_fault_totals_continue_after_resume(begin):
  counters = {"env_steps": 1, "learner_steps": 2}
  fault = Faulted(**counters, counts={"not_finite_value": 3, "lost_steps": 5}, message="again")
  state, totals = None, []
  for name in ("one", "two"):
    run, recorder, _ = begin(name=name, resumed=resumed_with(state))
    recorder.observe(fault)
    state = recorder._get_state(StateReady(**counters, state=RunState(training={})))
    recorder.close()
    totals += [(t["faults/not_finite_value"], t["faults/lost_steps"]) for t in read_metrics(run.metrics_path)]
  assert totals == [(3, 5), (6, 10)]


def test_start_is_shown_by_phases_with_seconds(begin):
  start = time.monotonic() - 7
  _, recorder, display = begin("replay.min_steps_to_learn=200", "logging.period_s=1", start=start)
  phase_notes(display, start)("starting Ray")
  with contextlib.closing(recorder):
    # Notes are at least two seconds apart, so 120 is skipped.
    for env_steps in (0, 60, 120, 200, 260):
      recorder.observe(acted(env_steps))
  lines = [line.split("  ", 2) for line in (note.strip() for note in display.notes)]
  assert [text for _, text in lines] == [
    "starting Ray",
    "acted the first segment",
    "filling replay: 60 of 200 steps",
    "filling replay: 200 of 200 steps",
  ]
  assert all(seconds in ("7 s", "8 s", "9 s") for seconds, _ in lines)
