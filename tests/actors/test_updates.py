"""Tests of update calls: batches in flight are bounded; results from before a rollback are dropped."""

import dataclasses

import pytest

from moozi.actors import updates
from moozi.core.actor_report import REPLAY, SERVER, ActorId
from moozi.core.errors import NotFiniteError
from moozi.io.config import load_config
from moozi.run.events import Faulted, Updated
from moozi.run.state import RunState
from tests.actors.fakes import actor, make_context

CONFIG = load_config(
  None,
  [
    *("learner.batch_size=8", "learner.updates_per_call=2", "learner.samples_per_step=4"),
    *("replay.min_steps_to_learn=32", "ray.batches_in_flight=2", "ray.publish_period_updates=2"),
  ],
)


@dataclasses.dataclass
class Training:
  learner_step: int


@pytest.fixture
def context():
  handles = {
    SERVER: actor("server", "update", "parameters", "roll_back"),
    REPLAY: actor("replay", "sample", "update_priorities"),
  }
  context = make_context(CONFIG, handles)
  context.ledger.shards.can_sample = True
  for num_steps in (32, 64):
    context.ledger.pacer.request_act(num_steps)
    context.ledger.pacer.done_act(num_steps)
    context.ledger.pacer.may_learn(can_sample=True)
  updates.publish_now(context)
  return context


def test_batches_in_flight_are_bounded(context):
  updates.request(context)
  assert context.pool.server.update.asked == [
    (0.997, 0.0, "replay.sample/1/0"),
    (0.997, 0.0, "replay.sample/2/0"),
  ]
  assert context.pool.shards[0].sample.asked == [(0.997, None), (0.997, None)]
  (event,) = context.calls.arrive("server.update/1/1", {"loss/total": 1.0})
  assert isinstance(event, Updated)
  assert (event.learner_steps, event.num_samples) == (2, 16)
  assert event.metrics["system/batches_in_flight"] == 2
  updates.request(context)
  assert len(context.pool.server.update.asked) == 3


def test_each_batch_has_the_share_of_the_time_that_has_passed(context):
  timed = CONFIG.model_copy(update={"max_wall_s": 120.0})
  context.session.inputs = dataclasses.replace(context.session.inputs, config=timed)
  seconds = iter((30.0, 60.0))
  context.session.wall_s = lambda: next(seconds)
  updates.request(context)
  assert [share for _, share, _ in context.pool.server.update.asked] == [0.25, 0.5]


def test_newest_parameters_are_published(context):
  assert context.ledger.parameters == "server.parameters/1/0"
  updates.request(context)
  for number in (1, 2):
    context.calls.arrive(f"server.update/{number}/1", {})
  assert len(context.pool.server.parameters.asked) == 2
  assert context.ledger.parameters == "server.parameters/1/0"
  context.calls.arrive("server.parameters/2/0")
  assert context.ledger.parameters == "server.parameters/2/0"


def test_publication_from_before_a_rollback_is_dropped(context):
  updates.request(context)
  context.calls.arrive("server.update/1/1", {})
  updates.rewind(context, found=0)
  assert context.ledger.parameters == "server.parameters/3/0"
  context.calls.arrive("server.parameters/2/0")
  assert context.ledger.parameters == "server.parameters/3/0"


def test_the_gate_begins_with_the_first_parameters_that_arrive():
  server = actor("server", "parameters")
  context = make_context(load_config(None, ["evaluation.gate_score=0.5"]), {SERVER: server})
  gate = context.ledger.gate
  updates.publish_now(context)
  context.calls.lose("server.parameters/1/0")
  updates.rewind(context, found=0)
  assert context.ledger.parameters == "server.parameters/2/0"
  assert gate.acting is None
  assert context.calls.arrive("server.parameters/2/0", ("variables", 3)) == []
  assert gate.acting == ("variables", 3)
  updates.rewind(context, found=0)
  assert context.ledger.parameters.value == ("variables", 3)
  assert len(server.parameters.asked) == 2


def test_update_from_before_a_rollback_is_lost(context):
  updates.request(context)
  learner_steps = context.ledger.next_free_version
  updates.rewind(context, found=0)
  assert context.calls.arrive("server.update/1/1", {}) == []
  assert context.ledger.learner_steps == learner_steps
  assert context.ledger.batches_in_flight == 1
  assert context.ledger.pacer.learn.done == 0


def test_repeated_non_finite_updates_roll_back_once(context):
  context.session.rollback._latest = lambda: RunState(training=Training(0))
  updates.request(context)
  context.calls.arrive("server.update/1/1", {})
  error = NotFiniteError("value is not finite")
  (fault,) = context.calls.lose("server.update/2/1", error)
  assert isinstance(fault, Faulted)
  assert fault.message.startswith("value is not finite; restored")
  assert fault.counts == {"rollbacks": 1, "lost_updates": 2}
  ((restored,),) = context.pool.server.roll_back.asked
  assert int(restored.learner_step) == fault.learner_steps == 8
  updates.request(context)
  with pytest.raises(NotFiniteError, match="value is not finite"):
    context.calls.lose("server.update/3/1", error)


def test_priorities_are_not_written_into_a_restarted_replay(context):
  updates.request(context)
  old = context.pool.shards[0]
  context.pool.handles[ActorId(REPLAY)] = actor("replay", "sample", "update_priorities")
  (event,) = context.calls.arrive("server.update/1/1", {"loss/total": 1.0})
  assert isinstance(event, Updated)
  assert not old.update_priorities.asked
  assert not context.pool.shards[0].update_priorities.asked
