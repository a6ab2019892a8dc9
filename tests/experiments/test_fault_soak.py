"""Tests of the fault soak: the injected faults, and the analysis of synthetic results."""

import json
import random
import re
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from experiments.fault_soak import analysis, soak
from experiments.lib.results import ROOT
from moozi.core.errors import UserError
from moozi.core.flat_state import Snapshot
from moozi.envs.registry import make
from moozi.io.checkpoints import ResumeStore, load_checkpoint, path_of, save_checkpoint
from moozi.io.config import load_config

STATE = {"x": np.arange(100)}


@pytest.fixture
def run(tmp_path):
  """Makes a run with three checkpoints, of which the newest has no resume state."""
  store = ResumeStore(tmp_path / "resume")
  for step in (10, 20, 30):
    meta = {"env_steps": step, "learner_steps": step}
    save_checkpoint(tmp_path / "checkpoints", f"step_{step:09d}", STATE, meta)
    if step < 30:
      store.save(f"step_{step:09d}", Snapshot(head={"y": np.arange(100)}), meta)
  return tmp_path


@pytest.mark.parametrize("half", ["checkpoints", "resume"])
def test_damages_the_newest_complete_checkpoint(run, half):
  assert [info.env_steps for info in soak.resumable(run)] == [10, 20]
  assert soak.damage(run, half) == "step_000000020"
  load_checkpoint(path_of(run / "checkpoints", "step_000000010"), STATE)
  load_checkpoint(path_of(run / "checkpoints", "step_000000030"), STATE)
  readers = {
    "checkpoints": lambda: load_checkpoint(path_of(run / "checkpoints", "step_000000020"), STATE),
    "resume": lambda: ResumeStore(run / "resume").load("step_000000020"),
  }
  with pytest.raises(UserError, match="altered or cut"):
    readers[half]()


def test_every_fault_is_injected_once_before_any_repeats():
  faults = soak.fault_order(random.Random(0))
  for _ in range(2):
    assert {next(faults) for _ in soak.FAULTS} == set(soak.FAULTS)
  assert set(analysis.COUNTERS) <= set(soak.FAULTS)


def test_committed_faults_are_known_and_counted():
  result = json.loads((analysis.RESULTS / "soak_faults.json").read_text())
  assert {fault["kind"] for fault in result["injected"]} == set(soak.FAULTS)
  assert analysis.mismatches(result["injected"], result["faults"]) == []


def test_env_fails_once(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(str(ROOT / "experiments" / "fault_soak"))
  overrides = ["env.name=breakable:make_env", f"env.kwargs.folder={tmp_path}"]
  config = load_config(ROOT / "config" / "minatar" / "breakout.yaml", overrides)
  env = make(config.env.name, seed=1, **config.env.kwargs)
  plain = make("minatar:breakout", seed=1, sticky_action_prob=0.0, max_episode_steps=1000)
  assert env.env_spec == plain.env_spec
  for step, expected in [(env.reset(), plain.reset()), *((env.step(1), plain.step(1)) for _ in range(5))]:
    np.testing.assert_array_equal(step.observation.frame, expected.observation.frame)
  (tmp_path / "fault").write_text("raise")
  with pytest.raises(ArithmeticError, match="injected fault"):
    env.step(1)
  np.testing.assert_array_equal(env.step(1).observation.frame, plain.step(1).observation.frame)


@pytest.fixture
def faulted(tmp_path, monkeypatch):
  """Makes a soak whose run is a process with one child."""
  code = "import subprocess; subprocess.run(['sleep', '600' + '.25'])"

  def start(self, arguments):
    process = soak.psutil.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    self._seen = {process}
    return process

  times = {"monotonic": time.monotonic, "sleep": lambda seconds: time.sleep(0.01)}
  monkeypatch.setattr(soak, "time", types.SimpleNamespace(**times))
  monkeypatch.setattr(soak, "RUNS", tmp_path)
  monkeypatch.setattr(soak.Soak, "_start", start)
  out = soak.Soak("one", seed=0)
  yield out
  out.kill()
  out.process.wait()


def test_fault_without_target_is_not_injected(faulted):
  assert not faulted.inject("TrainingWorker")
  assert faulted.faults == []


def test_orphans_are_found(faulted):
  while not (children := faulted.actors("600.25")):
    pass
  faulted.sample()
  faulted.process.kill()
  faulted.process.wait()
  assert faulted.processes() == children
  faulted.kill()
  assert not soak.is_alive(children[0])
  assert not soak.kill(faulted.process)


def test_run_has_settled_after_progress_and_checkpoint(faulted, monkeypatch):
  ticks, checkpoints = [], []
  monkeypatch.setattr(faulted, "ticks", lambda: ticks)
  monkeypatch.setattr(soak, "resumable", lambda run: checkpoints)

  def tick(env_steps, learner_steps, errors):
    line = {"env_steps": env_steps, "learner_steps": learner_steps, "faults/env_errors": errors}
    ticks.append(line)

  def save(env_steps):
    checkpoints.append(types.SimpleNamespace(env_steps=env_steps))

  assert not faulted.has_settled()
  tick(100, 10, 0)
  assert not faulted.has_settled()
  save(100)
  assert faulted.has_settled()
  assert faulted.inject("environment raises")
  assert (faulted.env_folder / "fault").read_text() == "raise"
  tick(200, 20, 0)
  save(200)
  assert not faulted.has_settled()
  tick(300, 20, 1)
  assert not faulted.has_settled()
  save(310)
  assert faulted.has_settled()


def test_last_tick_of_a_stopped_run_is_not_progress(faulted, monkeypatch):
  last = {"env_steps": 100, "learner_steps": 10}
  match = re.search(soak.RESUMED, "resumed from step_000000120")

  def end(timeout):
    last.update(env_steps=120, learner_steps=12)
    return 0

  monkeypatch.setattr(faulted, "last_tick", lambda: dict(last))
  monkeypatch.setattr(faulted, "_wait_for_log", lambda *_: match)
  checkpoint = types.SimpleNamespace(env_steps=10**6)
  monkeypatch.setattr(soak, "resumable", lambda run: [checkpoint])
  with monkeypatch.context() as patch:
    patch.setattr(faulted, "process", types.SimpleNamespace(send_signal=lambda number: None, wait=end))
    patch.setattr(faulted, "processes", list)
    patch.setattr(faulted, "_start", lambda arguments: None)
    assert faulted.inject("SIGTERM")
  assert faulted.faults[0]["last_tick"] == faulted.faults[0]["resumed_at"] == 120
  assert not faulted.has_settled()
  last.update(env_steps=121, learner_steps=13)
  assert faulted.has_settled()


def curve(*means):
  return [
    {"env_steps": 250_000 * (i + 1), "return_mean": mean, "return_std": 1.0, "episodes": 100}
    for i, mean in enumerate(means)
  ]


def test_compares_last_evaluations_with_range():
  calm = [curve(*range(12)), curve(*range(12))]
  # Around evaluation i, the returns of the runs without faults range from i - 2 to i + 2.
  lines = analysis.compare(curve(0, 0, 0, 0, 0, 3, 8, 9, 10.3, 6.9)[-5:], calm)
  assert ["within" in line for line in lines] == [True, True, True, False, False, False]
  assert lines[3] == "10.30 ± 0.20 at 2.25M steps: by 0.30 OUTSIDE 6.00 … 10.00 of the others"
  assert "6.90 ± 0.20 at 2.50M steps: by 0.10 OUTSIDE 7.00 … 11.00" in lines[4]
  assert lines[5] == "3 of 5 are in the range of the others, 4 by two standard errors"


def test_steps_beyond_a_calm_run_are_undecided():
  lines = analysis.compare(curve(*[1] * 12)[-5:], [curve(*[1] * 12), curve(*[1] * 8)])
  assert ["within" in line for line in lines[:-1]] == [True, True, True, False, False]
  assert "not every run" in lines[4]


def test_calibrates_calm_runs():
  calm = [curve(*[1] * 10), curve(*[1] * 10), curve(*[1] * 9, 5)]
  lines = analysis.calibrate(curve(*range(10))[-5:], calm)
  assert lines[0] == "mean of the 5 with faults: 7.0"
  where, text = "at the nearest evaluations", "are in the range of the others"
  assert lines[1] == f"run without faults 1, {where}: mean 1.0; 5 of 5 {text}, 5 by two standard errors"
  assert lines[3] == f"run without faults 3, {where}: mean 1.8; 4 of 5 {text}, 4 by two standard errors"


def test_compares_injected_with_counted_faults():
  counted = dict.fromkeys(analysis.COUNTERS.values(), 0) | {
    "env_errors": 2,
    "lost_steps": 7,
    "replay_buffer": 2,
  }
  result = {
    "exit_status": 0,
    "env_steps": 1010,
    "learner_steps": 9,
    "wall_s": 60.0,
    "faults": counted,
    "replay_added": 990,
    "checkpoint_env_steps": 1000,
    "evaluations": [],
    "samples": [{"resident_mib": i, "files": 3} for i in range(10)],
    "injected": [
      {"s": 1, "kind": "environment raises"},
      {"s": 2, "kind": "environment hangs"},
      {"s": 3, "kind": "ReplayActor"},
      {"s": 4, "kind": "SIGTERM", "status": 1, "ended_after_s": 2.0, "last_tick": 500, "resumed_at": 500},
      {"s": 5, "kind": "driver", "status": -9, "ended_after_s": 1.0, "last_tick": 700, "resumed_at": 620},
    ],
  }
  text = "\n".join(analysis.describe("soak_faults", result))
  assert "counted against injected: replay_buffer: 2 counted, 1 injected\n" in text
  assert "steps not accounted for: 3\n" in text
  assert "steps after the last checkpoint: 10\n" in text
  assert "run resumed: 80\n" in text
  assert "SIGTERM: status 1 after 2.0 s" in text
  assert "resident_mib, median of each fifth: 0.5, 2.5, 4.5, 6.5, 8.5" in text
