"""Tests of kept segments: each worker's are yielded in order, and gaps are marked."""

import types

import pytest

from moozi.actors import segments
from moozi.io.config import load_config
from moozi.replay.validation import AddResult
from moozi.run.events import Collected, Faulted
from tests.actors.fakes import actor, make_context

CONFIG = load_config(None, ["workers.num_envs=4", "workers.num_workers=3", "trajectories.save=true"])


@pytest.fixture
def context():
  workers = {i: actor(f"worker_{i}", "run", "reset") for i in range(3)}
  return make_context(CONFIG, types.SimpleNamespace(workers=workers, replay=actor("replay", "add")))


def store(context, index, segment, num_lost=0, refused=None):
  """Reports to the driver that replay has stored a segment; returns the events."""
  context.ledger.begin_segment(index)
  added = AddResult(num_lost=num_lost, refused=refused)
  replay = context.pool.replay
  return segments._on_stored(context, index, segment, replay, (True, {}, added))


def collected(events):
  (event,) = events
  assert isinstance(event, Collected)
  return event.segment, event.first_lane, event.follows


def test_kept_segments_are_waited_for_one_at_a_time(context):
  calls = context.calls
  for segment in ("a", "b", "c"):
    store(context, 2, segment)
  store(context, 0, "x")
  # At most one segment of each worker is fetched at a time, so none overtakes another.
  assert list(calls.pending) == ["a", "x"]
  assert calls.pending["a"][0] == "a segment of training_worker_2"
  assert collected(calls.arrive("a")) == ("value of a", 8, True)
  assert collected(calls.arrive("x")) == ("value of x", 0, True)
  assert list(calls.pending) == ["b"]
  assert collected(calls.arrive("b")) == ("value of b", 8, True)
  assert collected(calls.arrive("c")) == ("value of c", 8, True)
  assert not calls.pending


def test_refused_segment_leaves_a_gap_and_resets_the_worker(context):
  calls = context.calls
  store(context, 0, "a")
  (fault,) = store(context, 0, "b", num_lost=8, refused="last_reward is not finite")
  assert isinstance(fault, Faulted)
  assert fault.counts == {"refused_segments": 1, "lost_steps": 8}
  assert context.pool.workers[0].reset.asked == [()]
  store(context, 1, "x")
  store(context, 0, "c")
  store(context, 0, "d")
  assert collected(calls.arrive("a"))[2]
  assert collected(calls.arrive("x"))[2]
  assert not collected(calls.arrive("c"))[2]
  assert collected(calls.arrive("d"))[2]


def test_segment_lost_in_transfer_leaves_a_gap(context):
  calls = context.calls
  for segment in ("a", "b", "c"):
    store(context, 0, segment)
  assert calls.lose("a") == []
  assert not collected(calls.arrive("b"))[2]
  assert collected(calls.arrive("c"))[2]
  store(context, 0, "d")
  assert calls.lose("d") == []
  assert not calls.pending
  store(context, 0, "e")
  assert not collected(calls.arrive("e"))[2]


def test_all_kept_segments_can_be_delivered_together(context):
  calls = context.calls
  assert list(segments.deliver_kept(context, 1.0)) == []
  for segment in ("a", "b", "c"):
    store(context, 0, segment)
  store(context, 1, "x")
  calls.lost.add("b")
  found = [collected([event]) for event in segments.deliver_kept(context, 1.0)]
  assert sorted(found) == [("value of a", 0, True), ("value of c", 0, False), ("value of x", 4, True)]
  assert not calls.pending


def test_segments_in_transfer_arrive_later_or_are_discarded(context):
  calls = context.calls
  for segment in ("a", "b"):
    store(context, 0, segment)
  store(context, 1, "x")
  calls.travelling = {"b"}
  found = [collected([event])[0] for event in segments.deliver_kept(context, 1.0)]
  assert found == ["value of a", "value of x"]
  store(context, 0, "c")
  assert list(calls.pending) == ["b"]
  segments.discard_kept(context)
  assert not calls.pending
  store(context, 0, "d")
  assert not collected(calls.arrive("d"))[2]


def acted():
  return types.SimpleNamespace(metrics={}, version=0, episode_returns=(), episode_lengths=())


def test_segment_lost_while_its_worker_works_leaves_a_gap(context):
  calls, worker, add = context.calls, context.pool.workers[0], context.pool.replay.add
  segments.request(context)
  (fault,) = calls.lose("worker_0.run/1/1")
  assert fault.counts == {"dropped_steps": context.ledger.segment_steps}
  # The worker's next segment continues episodes of the lost one.
  assert worker.reset.asked == [()]
  calls.arrive("worker_0.run/2/1", acted())
  assert add.asked == [("worker_0.run/2/0", 0, 2)]
  calls.arrive("replay.add/1/0", (True, {}, AddResult(num_lost=0)))
  assert not collected(calls.arrive("worker_0.run/2/0"))[2]
  # Segments can also be lost on their way to replay.
  calls.arrive("worker_1.run/1/1", acted())
  calls.lose("replay.add/2/0")
  assert context.pool.workers[1].reset.asked == [()]


def test_restarted_worker_is_not_reset(context):
  segments.request(context)
  context.calls.lose("worker_0.run/1/1", context.ray.exceptions.ActorDiedError())
  context.calls.lose("worker_0.run/2/1", None)  # the run stops
  assert context.pool.workers[0].reset.asked == []


def test_segment_of_an_older_epoch_is_dropped(context):
  context.ledger.parameters = "parameters"
  segments.request(context)
  asked = context.ledger.pacer.env_steps_requested
  context.ledger.restart_replay(num_added=0)
  (fault,) = context.calls.arrive("worker_0.run/1/1", acted())
  assert fault.counts == {"dropped_steps": context.ledger.segment_steps}
  assert not context.pool.replay.add.asked
  assert context.ledger.pacer.env_steps_requested == asked - context.ledger.segment_steps


def test_workers_queues_are_filled_evenly(context):
  segments.request(context)
  in_flight = [len(worker.run.asked) for worker in context.pool.workers.values()]
  assert in_flight == [CONFIG.ray.segments_in_flight] * 3
  (fault,) = context.calls.lose("worker_1.run/1/1")
  assert fault.counts == {"dropped_steps": context.ledger.segment_steps}
  assert context.ledger.segments_in_flight[1] == CONFIG.ray.segments_in_flight - 1
