"""The soak with faults: what it does to a run and its processes, and its table of results made by hand."""

import random
import re
import subprocess
import sys
import types

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs.registry import make
from moozi.io.checkpoints import load_checkpoint, save_checkpoint
from moozi.io.config import load_config
from moozi.io.resume_store import ResumeStore
from tests.experiments.made import ROOT, load_script

soak = load_script("experiments", "fault_soak", "soak.py")
analysis = soak.analysis
STATE = {"x": np.arange(100)}


@pytest.fixture
def run(tmp_path):
  """Three checkpoints, the newest with one half only."""
  store = ResumeStore(tmp_path / "resume")
  for step in (10, 20, 30):
    meta = {"env_steps": step, "learner_steps": step}
    save_checkpoint(tmp_path / "checkpoints", f"step_{step:09d}", STATE, meta)
    if step < 30:
      store.save(f"step_{step:09d}", {"y": np.arange(100)}, meta)
  return tmp_path


@pytest.mark.parametrize("half", ["checkpoints", "resume"])
def test_the_newest_checkpoint_with_both_halves_is_damaged(run, half):
  assert [info.env_steps for info in soak.resumable(run)] == [10, 20]
  assert soak.damage(run, half) == "step_000000020"
  load_checkpoint(run / "checkpoints" / "step_000000010", STATE)
  load_checkpoint(run / "checkpoints" / "step_000000030", STATE)
  readers = {
    "checkpoints": lambda: load_checkpoint(run / "checkpoints" / "step_000000020", STATE),
    "resume": lambda: ResumeStore(run / "resume").load("step_000000020"),
  }
  with pytest.raises(UserError, match="altered or cut"):
    readers[half]()


def test_every_fault_comes_once_before_any_comes_again():
  faults = soak.in_turn(random.Random(0))
  for _ in range(2):
    assert {next(faults) for _ in soak.FAULTS} == set(soak.FAULTS)
  assert set(analysis.TOLD) <= set(soak.FAULTS)


def test_the_env_fails_once_where_it_is_told_to(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(str(ROOT / "experiments" / "fault_soak"))
  overrides = ["env.name=breakable:make_env", f"env.kwargs.folder={tmp_path}"]
  config = load_config(ROOT / "config" / "minatar" / "breakout.yaml", overrides)
  world = make(config.env.name, seed=1, **config.env.kwargs)
  calm = make("minatar:breakout", seed=1, sticky_action_prob=0.0, max_episode_steps=1000)
  assert world.env_spec == calm.env_spec
  for step, beside in [(world.reset(), calm.reset()), *((world.step(1), calm.step(1)) for _ in range(5))]:
    np.testing.assert_array_equal(step.observation.frame, beside.observation.frame)
  (tmp_path / "fault").write_text("raise")
  with pytest.raises(ArithmeticError, match="a fault of the environment's own"):
    world.step(1)
  np.testing.assert_array_equal(world.step(1).observation.frame, calm.step(1).observation.frame)


@pytest.fixture
def faulted(tmp_path, monkeypatch):
  """A run whose driver is a process that waits for its one child."""
  code = "import subprocess; subprocess.run(['sleep', '600' + '.25'])"

  def start(self, arguments):
    process = soak.psutil.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    self._seen = {process}
    return process

  monkeypatch.setattr(soak, "RUNS", tmp_path)
  monkeypatch.setattr(soak.Soak, "_start", start)
  out = soak.Soak("one", seed=0)
  yield out
  out.kill()
  out.process.wait()


def test_a_fault_that_finds_nobody_is_none(faulted):
  assert not faulted.inject("TrainingWorker")
  assert faulted.faults == []


def test_all_processes_are_found_once_their_parent_is_dead(faulted):
  while not (children := faulted.actors("600.25")):
    pass
  faulted.sample()
  faulted.process.kill()
  faulted.process.wait()
  assert faulted.processes() == children
  faulted.kill()
  assert not soak.is_alive(children[0])
  assert not soak.kill(faulted.process)


def test_a_run_has_settled_where_it_has_gone_on_and_the_fault_is_told_and_saved(faulted, monkeypatch):
  ticks, checkpoints = [], []
  monkeypatch.setattr(faulted, "ticks", lambda: ticks)
  monkeypatch.setattr(soak, "resumable", lambda run: checkpoints)

  def tick(env_steps, learner_steps, told):
    line = {"env_steps": env_steps, "learner_steps": learner_steps, "faults/env_errors": told}
    ticks.append(line)

  def save(env_steps):
    checkpoints.append(soak.CheckpointInfo(path=faulted.run, env_steps=env_steps, learner_steps=0, meta={}))

  assert not faulted.has_settled()
  tick(100, 10, 0)
  assert not faulted.has_settled()
  save(100)
  assert faulted.has_settled()
  assert faulted.inject("environment raises")
  assert (faulted.world / "fault").read_text() == "raise"
  tick(200, 20, 0)
  save(200)
  assert not faulted.has_settled()
  tick(300, 20, 1)
  assert not faulted.has_settled(), "no checkpoint since"
  save(310)
  assert faulted.has_settled()


def test_the_tick_that_a_stopped_run_writes_at_its_end_is_no_progress(faulted, monkeypatch):
  last = {"env_steps": 100, "learner_steps": 10}
  said = re.search(r"resuming from step_(\d+)", "resuming from step_000000120")

  def end(timeout):
    last.update(env_steps=120, learner_steps=12)
    return 0

  monkeypatch.setattr(faulted, "last_tick", lambda: dict(last))
  monkeypatch.setattr(faulted, "_wait_for_words", lambda *_: said)
  checkpoint = soak.CheckpointInfo(path=faulted.run, env_steps=10**6, learner_steps=0, meta={})
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


def test_the_last_evaluations_are_held_against_the_range_at_about_the_same_steps():
  calm = [curve(*range(12)), curve(*range(12))]
  # At step i the calm runs span i - 2 to i + 2.
  lines = analysis.compare(curve(0, 0, 0, 0, 0, 3, 8, 9, 10.3, 6.9)[-5:], calm)
  assert ["within" in line for line in lines] == [True, True, True, False, False, False]
  assert lines[3] == "10.30 ± 0.20 at 2.25M steps: by 0.30 OUTSIDE 6.00 … 10.00 of the others"
  assert "6.90 ± 0.20 at 2.50M steps: by 0.10 OUTSIDE 7.00 … 11.00" in lines[4]
  assert lines[5] == "3 of 5 lie in the range of the others, 4 by two standard errors"


def test_steps_that_a_calm_run_has_not_come_to_decide_nothing():
  lines = analysis.compare(curve(*[1] * 12)[-5:], [curve(*[1] * 12), curve(*[1] * 8)])
  assert ["within" in line for line in lines[:-1]] == [True, True, True, False, False]
  assert "not every run" in lines[4]


def test_each_run_without_faults_is_held_against_the_others():
  calm = [curve(*[1] * 10), curve(*[1] * 10), curve(*[1] * 9, 5)]
  lines = analysis.calibrate(curve(*range(10))[-5:], calm)
  assert lines[0] == "mean of the 5 with faults: 7.0"
  said = "lie in the range of the others"
  assert (
    lines[1] == f"run without faults 1, at these steps: mean 1.0; 5 of 5 {said}, 5 by two standard errors"
  )
  assert (
    lines[3] == f"run without faults 3, at these steps: mean 1.8; 4 of 5 {said}, 4 by two standard errors"
  )


def test_what_was_injected_is_held_against_what_was_told():
  told = dict.fromkeys(analysis.TOLD.values(), 0) | {"env_errors": 2, "lost_steps": 7, "replay_buffer": 2}
  result = {
    "exit_status": 0,
    "env_steps": 1010,
    "learner_steps": 9,
    "wall_s": 60.0,
    "faults": told,
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
  said = "\n".join(analysis.describe("soak_faults", result))
  assert "told against injected: replay_buffer: 2 told, 1 injected\n" in said
  assert "steps not accounted for: 3\n" in said
  assert "steps after the last checkpoint: 10\n" in said
  assert "was resumed from: 80\n" in said
  assert "SIGTERM: status 1 after 2.0 s" in said
  assert "resident_mib, median of each fifth: 0.5, 2.5, 4.5, 6.5, 8.5" in said
