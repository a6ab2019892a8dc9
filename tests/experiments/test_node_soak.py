"""Tests of the soak over nodes: its events, its accounting, and the committed result."""

import collections
import json
import random
import types

import pytest

from experiments.node_soak import soak, table
from tests.tiny_run import TINY


class FakeSoak:
  """Makes events without a cluster; `impossible` are the kinds that cannot be made."""

  def __init__(self, impossible=()):
    self.impossible, self.made, self.events = set(impossible), [], [{}]
    self.now = 0.0

  def elapsed(self):
    self.now += 1.0
    return self.now

  def has_settled(self):
    return True

  def check(self):
    pass

  def sample(self):
    pass

  def make(self, kind):
    if kind in self.impossible:
      return False
    self.made.append(kind)
    return True


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch, request):
  if "slow" not in request.keywords:
    clock = types.SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: 0.0)
    monkeypatch.setattr(soak, "time", clock)


def test_each_kind_is_made_once_before_any_repeats():
  fake = FakeSoak()
  soak.attend(fake, minutes=10, every_s=20, chance=random.Random(0))
  assert len(fake.made) > 2 * len(soak.EVENTS)
  for begin in (0, len(soak.EVENTS)):
    assert set(fake.made[begin : begin + len(soak.EVENTS)]) == set(soak.EVENTS)


def test_an_event_that_is_impossible_waits_and_the_others_go_on():
  fake = FakeSoak(["a node joins"])
  soak.attend(fake, minutes=10, every_s=20, chance=random.Random(0))
  possible = set(soak.EVENTS) - {"a node joins"}
  counts = collections.Counter(fake.made)
  assert set(counts) == possible
  assert min(counts.values()) >= 3
  assert max(counts.values()) - min(counts.values()) <= 1


@pytest.fixture
def run(monkeypatch):
  """Makes a soak without processes, with two nodes, and the ticks and checkpoints that a test sets."""
  one = soak.NodeSoak.__new__(soak.NodeSoak)
  one.cluster = types.SimpleNamespace(nodes={"node1": 1, "node2": 2})
  one.events, one._before, one._settled_at, one.started = [], {"env_steps": 10, "learner_steps": 1}, None, 0.0
  one.tick = {"env_steps": 10, "learner_steps": 1, "system/training_workers": 2}
  monkeypatch.setattr(one, "last_tick", lambda: dict(one.tick))
  one.saved, one.run = [], None
  monkeypatch.setattr(soak, "resumable", lambda run: one.saved)
  return one


def test_a_run_has_settled_after_progress_workers_faults_and_a_checkpoint(run):
  ended = {"TrainingWorker": 1, "ReplayActor": 1}
  run.events += [
    {"kind": "a training worker is killed", "ended": {"TrainingWorker": 1}, "ended_s": 0.0},
    # Its training worker may have been removed before the failure was noticed.
    {"kind": "a node fails", "ended": ended, "ended_s": 0.0},
  ]
  run.tick |= {"env_steps": 30}
  assert not run.has_settled()
  run.tick |= {"learner_steps": 3, "system/training_workers": 1}
  assert not run.has_settled()
  run.tick |= {"system/training_workers": 2, "faults/training_worker": 1}
  assert not run.has_settled()
  assert "recovered_s" not in run.events[-1]
  run.tick |= {"faults/replay_buffer": 1}
  assert not run.has_settled()
  assert run.events[-1]["recovered_s"] == 0
  run.saved = [types.SimpleNamespace(env_steps=20)]
  assert not run.has_settled()
  run.saved.append(types.SimpleNamespace(env_steps=30))
  assert run.has_settled()


def test_nodes_stay_in_their_number(run):
  run.cluster.nodes["node3"] = 3
  assert run.join() is None
  run.cluster.nodes = {"node1": 1}
  assert run.leave() is None
  assert run.fail() is None


def test_steps_are_accounted_for_by_shard():
  result = {"checkpoint_env_steps": 1000, "added": [500, 396], "faults": {"lost_steps": 100}}
  assert soak.unaccounted(result) == 4


def test_the_committed_run_lost_nothing_that_it_did_not_report():
  result = json.loads(soak.RESULT.read_text("utf-8"))
  assert soak.unaccounted(result) == 0
  assert result["exit_status"] == 0
  assert result["checkpoint_env_steps"] == result["env_steps"]
  assert {event["kind"] for event in result["events"]} == set(soak.EVENTS)
  for kind, count in soak.must_be_counted(result["events"]).items():
    assert result["faults"][soak.COUNTERS[kind]] >= count
  assert len(table.events_table().splitlines()) == 2 + len(soak.EVENTS)


@pytest.mark.slow
def test_a_short_soak(tmp_path, monkeypatch):
  """A node joins, and another fails with what is on it."""
  monkeypatch.setattr(soak, "RUNS", tmp_path)
  settings = (*TINY, *soak.SETTINGS, "checkpoint.period_s=3", "logging.period_s=0.5")
  run = soak.NodeSoak("one", seed=0, settings=settings)
  try:
    for kind in ("a node joins", "a node fails"):
      while not run.has_settled():
        soak.time.sleep(0.5)
        run.check()
      assert run.make(kind)
    while not run.has_settled():
      soak.time.sleep(0.5)
      run.check()
    result = run.end()
    run.cluster.close()
  finally:
    run.kill()
  assert result["exit_status"] == 0
  assert soak.unaccounted(result) == 0
  assert result["ended"]["TrainingWorker"] == 1
