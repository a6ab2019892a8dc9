"""Tests of the soak over nodes: its events, its accounting, and the committed result."""

import collections
import itertools
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


def test_events_of_nodes_and_actors_alternate_and_each_kind_is_made_once_before_any_repeats():
  fake = FakeSoak()
  soak.attend(fake, minutes=10, every_s=20, chance=random.Random(0))
  for first, kinds in enumerate((soak.NODE_EVENTS, soak.ACTOR_EVENTS)):
    made = fake.made[first::2]
    assert len(made) > len(kinds)
    for begin in range(0, len(made), len(kinds)):
      part = made[begin : begin + len(kinds)]
      assert len(set(part)) == len(part)
      assert set(part) <= set(kinds)


def test_an_event_that_is_impossible_waits_and_the_others_go_on():
  fake = FakeSoak(["a node joins"])
  soak.attend(fake, minutes=10, every_s=20, chance=random.Random(0))
  possible = set(soak.NODE_EVENTS) - {"a node joins"}
  counts = collections.Counter(fake.made)
  assert set(counts) == possible | set(soak.ACTOR_EVENTS)
  assert abs(counts["a node fails"] - counts["a node leaves with notice"]) <= 1


@pytest.mark.parametrize(("impossible", "elapsed_s"), [([], 120), (["a node joins"], 240)])
def test_a_soak_continues_until_all_kinds_were_made_but_not_forever(impossible, elapsed_s):
  fake = FakeSoak(impossible)
  soak.attend(fake, minutes=2, every_s=2, chance=random.Random(0))
  assert fake.now == pytest.approx(elapsed_s, abs=1)


@pytest.fixture
def run(monkeypatch):
  """Makes a soak without processes, with two nodes, and the ticks and checkpoints that a test sets."""
  one = soak.NodeSoak.__new__(soak.NodeSoak)
  one.cluster = types.SimpleNamespace(nodes={"node1": 1, "node2": 2})
  one.events, one._before, one._num_before, one._settled_at, one.started = [], {}, 0, None, 0.0
  one.ticks, one.saved, one.run = [{"env_steps": 10}], [], None
  monkeypatch.setattr(soak, "ticks_of", lambda run: list(one.ticks))
  monkeypatch.setattr(soak, "resumable", lambda run: one.saved)
  return one


def test_a_run_has_settled_after_faults_progress_workers_and_a_checkpoint(run, monkeypatch):
  ended = {"TrainingWorker": 1, "ReplayActor": 1, "LearnerHost": 1, "ParameterServer": 1}
  monkeypatch.setitem(soak.EVENTS, "a node fails", lambda one: {"node": "node3", "ended": ended})
  faults = {"faults/training_worker": 4, "faults/replay_buffer": 0, "faults/parameter_server": 2}
  run.ticks[-1] |= faults
  assert run.make("a node fails")

  def tick(**changes):
    run.ticks.append(run.ticks[-1] | changes)
    return run.has_settled()

  # Results of before may arrive, and a restart raises the learner step: neither shows that the run works.
  assert not tick(**{"env_steps": 30, soak.UPDATED: 1.0, "system/training_workers": 2})
  run.ticks[-1].pop(soak.UPDATED)
  assert not tick(**{"faults/training_worker": 5, "faults/replay_buffer": 1})
  assert not tick(**{"faults/parameter_server": 3})
  assert not tick(env_steps=40)
  assert not tick(**{soak.UPDATED: 1.0, "system/training_workers": 1})
  assert "recovered_s" not in run.events[-1]
  assert not tick(**{"system/training_workers": 2}), "there is no checkpoint"
  assert run.events[-1]["recovered_s"] == 0
  run.saved = [types.SimpleNamespace(env_steps=30)]
  assert not run.has_settled()
  run.saved.append(types.SimpleNamespace(env_steps=40))
  assert run.has_settled()


def test_the_node_with_the_most_actors_fails(run, monkeypatch):
  on_nodes = {"node1": {"TrainingWorker": 1}, "node2": {"LearnerHost": 1, "ReplayActor": 1}}
  run.cluster.remove = lambda name, is_failure: None
  monkeypatch.setattr(run, "_on_node", on_nodes.get)
  assert run.fail() == {"node": "node2", "ended": {"LearnerHost": 1, "ReplayActor": 1}}


class Process:
  """A fake process; `asked` has what was done to it."""

  def __init__(self):
    self.asked = []

  def __getattr__(self, name):
    if name.startswith("_"):
      raise AttributeError(name)
    return lambda: self.asked.append(name)


@pytest.mark.parametrize("kind", soak.NAMES)
def test_events_of_actors_record_the_class(run, monkeypatch, kind):
  process = Process()
  run._random = random.Random(0)
  monkeypatch.setattr(run, "actors", lambda wanted: [process] if wanted == kind else [])
  monkeypatch.setattr(run, "_node_of", lambda process: "node1")
  name = soak.NAMES[kind]
  where = {"actor": kind, "node": "node1"}
  assert soak.EVENTS[f"{name} is stopped for a minute"](run) == where | {"ended": {}}
  assert process.asked == ["suspend", "resume"]
  assert soak.EVENTS[f"{name} is killed"](run) == where | {"ended": {kind: 1}}
  assert process.asked[-1] == "kill"
  monkeypatch.setattr(run, "actors", lambda wanted: [])
  assert soak.EVENTS[f"{name} is killed"](run) is None
  assert soak.EVENTS[f"{name} is stopped for a minute"](run) is None


def test_nodes_stay_in_their_number(run):
  run.cluster.nodes["node3"] = 3
  assert run.join() is None
  run.cluster.nodes = {"node1": 1}
  assert run.leave() is None
  assert run.fail() is None


def test_steps_are_accounted_for_by_shard():
  result = {"checkpoint_env_steps": 1000, "added": [500, 396], "faults": {"lost_steps": 100}}
  assert soak.unaccounted(result) == 4


def test_updates_are_accounted_for():
  result = {"updates": 100, "optimizer_steps": 90, "faults": {"lost_updates": 8}}
  assert soak.unaccounted_updates(result) == 2


def test_the_hosts_of_a_learner_are_one_fault():
  both = {"ParameterServer": 1, "LearnerHost": 1, "ReplayActor": 2}
  events = [{"ended": both}, {"ended": {"LearnerHost": 1}}, {"ended": {}}]
  assert +soak.must_be_counted(events) == {"parameter_server": 2, "replay_buffer": 2}


def test_the_committed_run_lost_nothing_that_it_did_not_report():
  result = json.loads(soak.RESULT.read_text("utf-8"))
  assert soak.unaccounted(result) == soak.unaccounted_updates(result) == 0
  assert result["exit_status"] == 0
  assert result["checkpoint_env_steps"] == result["env_steps"]
  events = result["events"]
  assert {event["kind"] for event in events} == set(soak.EVENTS)
  assert {event["actor"] for event in events if "stopped" in event["kind"]} == set(soak.NAMES)
  # The script made all events: it waits at most this long.
  assert not any("by_hand" in event for event in events)
  node_events = [event["s"] for event in events if event["kind"] in soak.NODE_EVENTS]
  assert max(after - before for before, after in itertools.pairwise(node_events)) < soak.PATIENCE_S
  assert result["ended"]["LearnerHost"] >= 1
  assert result["ended"]["ParameterServer"] >= 1
  assert result["faults"]["lost_updates"] > 0
  made, faults = soak.must_be_counted(events), result["faults"]
  # The processes of the learner may also end while one of them is stopped.
  learner = soak.COUNTERS["LearnerHost"]
  assert faults[learner] >= made[learner]
  others = set(soak.COUNTERS.values()) - {learner}
  assert {name: faults[name] for name in others} == {name: made[name] for name in others}
  assert len(table.events_table().splitlines()) == 2 + len(soak.EVENTS)


@pytest.mark.slow
def test_a_short_soak(tmp_path, monkeypatch):
  """A node joins, another fails with what is on it, and a host of the learner is killed."""
  monkeypatch.setattr(soak, "RUNS", tmp_path)
  settings = (*TINY, *soak.SETTINGS, "checkpoint.period_s=3", "logging.period_s=0.5")
  run = soak.NodeSoak("one", seed=0, settings=settings)
  try:
    for kind in ("a node joins", "a node fails", "the learner's other host is killed"):
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
  assert soak.unaccounted(result) == soak.unaccounted_updates(result) == 0
  assert result["ended"]["TrainingWorker"] == 1
  made = soak.must_be_counted(result["events"])
  assert made["parameter_server"] >= 1
  for name, count in made.items():
    assert result["faults"][name] >= count
