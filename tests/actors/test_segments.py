"""Tests of segments: those that are lost or dropped are counted, and gaps in the kept ones are marked."""

import types

import pytest

from moozi.actors import segments
from moozi.actors.shard_ledger import ShardReport
from moozi.core.actor_report import REPLAY, WORKER, ActorId
from moozi.io.config import load_config
from moozi.replay.protocol import Supply
from moozi.replay.validation import AddResult
from moozi.run.events import Collected, Faulted
from tests.actors import in_process_ray
from tests.actors.fakes import actor, make_context

CONFIG = load_config(None, ["workers.num_envs=4", "workers.num_workers=3", "trajectories.save=true"])


REPORT = ShardReport(can_sample=True, supply=Supply(num_steps=32, num_drawable=16, mass=16.0))


class Ray(in_process_ray.Ray):
  """A fake cluster with the objects that a test names; `errors` are those of `get`."""

  def __init__(self):
    super().__init__()
    self.errors = {}

  def get(self, reference, timeout=None):
    if reference in self.errors:
      raise self.errors[reference]
    return f"value of {reference}"


@pytest.fixture
def context(monkeypatch):
  monkeypatch.setattr(segments, "unpacked", lambda segment, spec: f"{segment} with frames")
  workers = {ActorId(WORKER, i): actor(f"worker_{i}", "run", "reset") for i in range(3)}
  return make_context(CONFIG, workers | {REPLAY: actor("replay", "add")}, Ray())


def store(context, index, segment, num_lost=0, refused=None):
  """Reports to the driver that replay has stored a worker's next segment; returns the events."""
  number = context.ledger.begin_segment(index)
  added = AddResult(num_lost=num_lost, refused=refused)
  replay = context.pool.shards[0]
  return segments._on_stored(context, index, number, segment, replay, (REPORT, {}, added))


def collected(events):
  (event,) = events
  assert isinstance(event, Collected)
  return event.segment, event.first_lane, event.follows


def test_stored_segments_are_kept(context):
  assert collected(store(context, 2, "a")) == ("value of a with frames", 8, True)
  assert collected(store(context, 0, "x")) == ("value of x with frames", 0, True)
  assert collected(store(context, 2, "b")) == ("value of b with frames", 8, True)


def test_refused_segment_leaves_a_gap_and_resets_the_worker(context):
  store(context, 0, "a")
  (fault,) = store(context, 0, "b", num_lost=8, refused="last_reward is not finite")
  assert isinstance(fault, Faulted)
  assert fault.counts == {"refused_segments": 1, "lost_steps": 8}
  assert context.pool.workers[0].reset.asked == [()]
  assert collected(store(context, 1, "x"))[2]
  assert not collected(store(context, 0, "c"))[2]
  assert collected(store(context, 0, "d"))[2]


@pytest.mark.parametrize("error", ["ObjectLostError", "GetTimeoutError"])
def test_segment_that_does_not_arrive_leaves_a_gap(context, error):
  context.ray.errors["b"] = getattr(context.ray.exceptions, error)()
  assert collected(store(context, 0, "a"))[2]
  assert store(context, 0, "b") == []
  assert not collected(store(context, 0, "c"))[2]
  assert collected(store(context, 0, "d"))[2]


def acted():
  return types.SimpleNamespace(metrics={}, version=0, episode_returns=(), episode_lengths=())


def test_segment_lost_while_its_worker_works_leaves_a_gap(context):
  calls, worker, add = context.calls, context.pool.workers[0], context.pool.shards[0].add
  segments.request(context)
  (fault,) = calls.lose("worker_0.run/1/1")
  assert fault.counts == {"dropped_steps": context.ledger.segment_steps}
  # The worker's next segment continues episodes of the lost one.
  assert worker.reset.asked == [()]
  calls.arrive("worker_0.run/2/1", acted())
  assert add.asked == [("worker_0.run/2/0", 0, 2)]
  assert not collected(calls.arrive("replay.add/1/0", (REPORT, {}, AddResult(num_lost=0))))[2]
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
  assert not context.pool.shards[0].add.asked
  assert context.ledger.pacer.env_steps_requested == asked - context.ledger.segment_steps


def test_workers_queues_are_filled_evenly(context):
  segments.request(context)
  in_flight = [len(worker.run.asked) for worker in context.pool.workers.values()]
  assert in_flight == [CONFIG.ray.segments_in_flight] * 3
  (fault,) = context.calls.lose("worker_1.run/1/1")
  assert fault.counts == {"dropped_steps": context.ledger.segment_steps}
  assert context.ledger.segments_in_flight[1] == CONFIG.ray.segments_in_flight - 1


def test_workers_take_turns_if_learning_limits_the_run(context, monkeypatch):
  """Otherwise one worker would act alone, and the failure of another would not be noticed."""
  ledger, workers = context.ledger, context.pool.workers
  monkeypatch.setattr(ledger.pacer, "may_act", lambda can_sample: not ledger.segments_in_flight.total())
  turns = []
  for _ in range(7):
    segments.request(context)
    (index,) = (i for i in workers if ledger.segments_in_flight[i])
    ledger.segments_in_flight[index] -= 1
    turns.append(index)
  assert turns == [0, 1, 2, 0, 1, 2, 0]
