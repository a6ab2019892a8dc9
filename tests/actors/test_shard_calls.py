"""Tests of the driver with several shards of replay: what each is sent, and what the loss of one changes."""

import types

import numpy as np
import pytest

from moozi.actors import failures, reanalyze_calls, segments, states, updates
from moozi.actors.pool import Restart
from moozi.actors.roles import Start, shard_actor
from moozi.actors.shard_ledger import ShardReport
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, WORKER, ActorId
from moozi.core.flat_state import Snapshot
from moozi.io.config import load_config
from moozi.replay.protocol import Supply
from moozi.replay.snapshot import num_added
from moozi.replay.validation import AddResult
from moozi.run.events import Faulted, Updated
from tests.actors.fakes import actor, make_context

CONFIG = load_config(
  None,
  [
    *("workers.num_workers=3", "workers.num_envs=2", "workers.segment_length=8", "ray.replay_shards=2"),
    *("replay.min_steps_to_learn=32", "learner.batch_size=8", "learner.updates_per_call=2"),
    *("learner.samples_per_step=4", "reanalyze.ratio=0.5", "reanalyze.batch_size=8"),
  ],
)
METHODS = "add", "sample", "update_priorities", "positions", "write_back", "snapshot", "ready"


def shard(name):
  return actor(name, *METHODS)


def report(num_steps=64, mass=10.0):
  return ShardReport(can_sample=True, supply=Supply(num_steps, num_steps // 2, mass))


@pytest.fixture
def context():
  handles = {ActorId(WORKER, i): actor(f"worker_{i}", "run", "reset") for i in range(3)}
  handles |= {shard_actor(CONFIG, i): shard(f"shard_{i}") for i in range(2)}
  handles |= {SERVER: actor("server", "update", "parameters", "get_state")}
  handles |= {ActorId(REANALYZE_WORKER, 0): actor("reanalyze_0", "run")}
  context = make_context(CONFIG, handles)
  for index in range(2):
    context.ledger.shards.hear(index, report())
  return context


def learn(context):
  context.ledger.pacer.request_act(128)
  context.ledger.pacer.done_act(64)
  context.ledger.pacer.may_learn(can_sample=True)
  context.ledger.pacer.done_act(64)
  updates.request(context)


def acted():
  return types.SimpleNamespace(metrics={}, version=0, episode_returns=(), episode_lengths=())


def test_segments_go_to_the_shard_of_their_worker(context):
  segments.request(context)
  for worker in range(3):
    context.calls.arrive(f"worker_{worker}.run/1/1", acted())
  first, second = context.pool.shards.values()
  assert first.add.asked == [("worker_0.run/1/0", 0, 1)]
  assert second.add.asked == [("worker_1.run/1/0", 2, 1), ("worker_2.run/1/0", 4, 1)]
  result = report(mass=0.0), {"replay/steps": 1.0}, AddResult(num_lost=3)
  (fault,) = context.calls.arrive("shard_1.add/2/0", result)
  assert fault.message.startswith("training_worker_2: 3 steps")
  assert [context.ledger.shards.steps_ahead(i) for i in range(2)] == [0, -3]
  assert context.ledger.shards.plan().keys() == {0}


def test_a_batch_is_drawn_from_both_shards(context):
  learn(context)
  first, second = context.pool.shards.values()
  assert context.pool.server.update.asked[0] == (0.997, 0.0, "shard_0.sample/1/0", "shard_1.sample/1/0")
  requests = [each.sample.asked[0][1] for each in (first, second)]
  assert [(x.share, x.num_drawable) for x in requests] == [(0.5, 64), (0.5, 64)]
  assert sorted(np.concatenate([x.rows for x in requests])) == list(range(16))
  (event,) = context.calls.arrive("server.update/1/1", {})
  assert isinstance(event, Updated)
  for each in (first, second):
    assert each.update_priorities.asked == [("server.update/1/0",)]
  # The masses are those after the new priorities.
  context.calls.arrive("shard_0.update_priorities/1/0", report(mass=30.0))
  assert context.ledger.shards.plan()[0].share == 0.75


def fail(context, index, num_added=0):
  """Restarts a shard as after a failure; returns the event and the new handle."""
  failed, handle = shard_actor(CONFIG, index), shard(f"new_{index}")

  def restart(actor, env_steps, learner_step):
    assert actor == failed
    context.pool.handles[actor] = handle
    return Restart(f"{actor} failed and was restarted", Start(num_added=num_added))

  context.pool.restart = restart
  context.pool.find = lambda error: failed
  (fault,) = failures.on_error(context, context.ray.exceptions.ActorDiedError("x"))
  assert isinstance(fault, Faulted)
  return fault, handle


def test_loss_of_a_shard_is_that_of_its_steps_and_workers(context):
  segments.request(context)
  for worker in range(3):
    context.calls.arrive(f"worker_{worker}.run/1/1", acted())
  for name in ("shard_0.add/1/0", "shard_1.add/1/0", "shard_1.add/2/0"):
    context.calls.arrive(name, (report(), {}, AddResult(num_lost=0)))
  fault, handle = fail(context, 1, num_added=20)
  assert fault.counts == {REPLAY: 1, "lost_steps": 2 * 16 - 20}
  assert [len(worker.reset.asked) for worker in context.pool.workers.values()] == [0, 1, 1]
  # The segments in flight of the other shard's worker are kept, and those of this shard's are dropped.
  assert len(context.calls.arrive("worker_0.run/2/1", acted())) == 1
  assert len(context.pool.shards[0].add.asked) == 2
  (dropped,) = context.calls.arrive("worker_1.run/2/1", acted())
  assert dropped.counts == {"dropped_steps": 16}
  assert not handle.add.asked
  assert context.ledger.shards.can_sample
  assert context.ledger.shards.plan().keys() == {0}
  context.calls.arrive("new_1.ready/1/0", (report(), ""))
  assert context.ledger.shards.plan().keys() == {0, 1}
  # Segments that are requested after the restart are stored.
  segments.request(context)
  context.calls.arrive("worker_1.run/3/1", acted())
  assert handle.add.asked == [("worker_1.run/3/0", 2, 3)]


def test_results_for_a_lost_shard_reach_the_other_only(context):
  learn(context)
  reanalyze_calls.publish(context)
  context.calls.arrive("server.parameters/1/0", ("variables", 0))
  context.ledger.shards.choose = lambda: 1
  reanalyze_calls.request(context)
  old = context.pool.shards[1]
  assert old.positions.asked[0] == (0,)
  _, new = fail(context, 1)
  context.calls.arrive("server.update/1/1", {})
  context.calls.arrive("reanalyze_0.run/1/1", (8, {}))
  assert not old.update_priorities.asked
  assert not new.update_priorities.asked
  assert not new.write_back.asked
  assert context.pool.shards[0].update_priorities.asked == [("server.update/1/0",)]
  # A report of the failed actor does not count.
  before = context.ledger.shards.plan().keys()
  segments._on_stored(context, 1, 1, "segment", old, (report(), {}, AddResult(num_lost=0)))
  assert context.ledger.shards.plan().keys() == before == {0}


def test_positions_are_written_back_to_their_shard(context):
  learn(context)
  reanalyze_calls.publish(context)
  context.calls.arrive("server.parameters/1/0", ("variables", 0))
  context.ledger.shards.choose = lambda: 1
  reanalyze_calls.request(context)
  context.calls.arrive("reanalyze_0.run/1/1", (8, {}))
  assert context.pool.shards[1].write_back.asked == [("reanalyze_0.run/1/0",)]
  assert not context.pool.shards[0].write_back.asked
  context.calls.arrive("shard_1.write_back/1/0", report(mass=30.0))
  assert context.ledger.shards.plan()[1].share == 0.75


def snapshot(added):
  head = {"counter/added": added, "storage/newest": np.array([added - 1])}
  return Snapshot(head=head, generations=np.full(64, added, np.int64))


def test_a_state_has_the_snapshots_of_all_shards(context):
  calls, ledger = context.calls, context.ledger
  known = np.arange(128)
  object.__setattr__(context.session.inputs, "saved_blocks", lambda: known)
  states.request(context, is_final=True)
  asked = [context.pool.shards[i].snapshot.asked[0][0] for i in range(2)]
  np.testing.assert_array_equal(np.concatenate(asked), known)
  assert calls.arrive("shard_1.snapshot/1/0", snapshot(40)) == []
  # Shard 1 refuses a segment after its snapshot, and shard 0 before.
  for worker in (0, 1):
    ledger.begin_segment(worker)
    ledger.store_segment(ledger.segment_steps, worker)
  assert calls.arrive("server.get_state/1/0", types.SimpleNamespace(learner_step=8)) == []
  (event,) = calls.arrive("shard_0.snapshot/1/0", snapshot(70))
  assert num_added(event.state.replay) == 110
  assert event.env_steps == 110 + ledger.segment_steps
  np.testing.assert_array_equal(event.state.replay.generations, np.repeat([70, 40], 64))
  assert not ledger.is_state_pending


def test_a_state_with_a_lost_shard_is_dropped(context):
  states.request(context, is_final=False)
  context.calls.arrive("shard_0.snapshot/1/0", snapshot(70))
  context.calls.arrive("server.get_state/1/0", types.SimpleNamespace(learner_step=8))
  assert context.calls.lose("shard_1.snapshot/1/0") == []
  assert not context.ledger.is_state_pending
