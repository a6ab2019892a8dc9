"""Tests of the driver's reanalyze calls: limits per worker, target network versions, and lost calls."""

import pytest

from moozi.actors import reanalyze_calls
from moozi.actors.roles import actors_of
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, ActorId
from moozi.io.config import load_config
from moozi.run.events import Reanalyzed
from tests.actors.fakes import actor, make_context


def make(ratio=0.5, num_workers=2, overrides=()):
  config = load_config(
    None,
    [
      f"reanalyze.ratio={ratio}",
      f"reanalyze.num_workers={num_workers}",
      "reanalyze.batch_size=8",
      "learner.target_update_period=100",
      "replay.min_steps_to_learn=32",
      "workers.num_envs=4",
      *overrides,
    ],
  )
  handles = {SERVER: actor("server", "parameters"), REPLAY: actor("replay", "positions", "write_back")}
  handles |= {
    worker: actor(f"worker_{worker.index}", "run") for worker in actors_of(REANALYZE_WORKER, config)
  }
  context = make_context(config, handles)
  context.ledger.shards.can_sample = True
  act(context, 32)
  context.ledger.pacer.may_learn(can_sample=True)
  reanalyze_calls.publish(context)
  return context


def act(context, num_steps):
  context.ledger.pacer.request_act(num_steps)
  context.ledger.pacer.done_act(num_steps)


def publish_target(context, number=1, version=0):
  context.calls.arrive(f"server.parameters/{number}/0", ("variables", version))


def update(context, learner_steps):
  context.ledger.learner_steps = learner_steps
  reanalyze_calls.publish_if_copied(context)


def test_nothing_is_requested_before_the_target_network_arrives():
  context = make()
  pool = context.pool
  act(context, 64)
  reanalyze_calls.request(context)
  assert not pool.shards[0].positions.asked
  publish_target(context)
  reanalyze_calls.request(context)
  # Each of the two workers has at most two calls, although pacing would allow eight in total.
  assert pool.shards[0].positions.asked == [(0,)] * 4
  assert [len(w.run.asked) for w in pool.reanalyze_workers.values()] == [2, 2]
  assert pool.reanalyze_workers[0].run.asked[0] == ("server.parameters/1/0", "replay.positions/1/0")


def test_results_are_written_back_and_make_room():
  context = make(num_workers=1)
  act(context, 64)
  publish_target(context)
  reanalyze_calls.request(context)
  (event,) = context.calls.arrive("worker_0.run/1/1", (8, {"reanalyze/value_change": 1.0}))
  assert isinstance(event, Reanalyzed)
  assert (event.num_positions, event.ratio) == (8, 8 / 72)
  assert context.pool.shards[0].write_back.asked == [("worker_0.run/1/0",)]
  reanalyze_calls.request(context)
  assert len(context.pool.reanalyze_workers[0].run.asked) == 3


def test_target_network_is_published_when_it_is_copied():
  context = make(num_workers=1)
  asked = context.pool.server.parameters.asked
  publish_target(context)
  # Until the first copy of the target network, each update publishes new target parameters.
  update(context, 96)
  assert len(asked) == 2
  update(context, 104)
  assert len(asked) == 3
  update(context, 112)
  assert len(asked) == 3
  publish_target(context, number=3, version=100)
  act(context, 8)
  reanalyze_calls.request(context)
  assert context.pool.shards[0].positions.asked == [(100,)]
  assert context.pool.reanalyze_workers[0].run.asked[0][0] == "server.parameters/3/0"


def test_averaged_target_network_is_published_as_often_as_the_parameters():
  context = make(num_workers=1, overrides=["learner.target_decay=0.99", "ray.publish_period_updates=16"])
  asked = context.pool.server.parameters.asked
  for learner_steps in range(8, 129, 8):
    update(context, learner_steps)
  assert asked == [("target",)] * (1 + 128 // 16)


def test_lost_search_is_requested_again():
  context = make(num_workers=1)
  act(context, 8)
  publish_target(context)
  reanalyze_calls.request(context)
  assert not context.ledger.pacer.may_reanalyze()
  assert context.calls.lose("worker_0.run/1/1") == []
  assert context.ledger.pacer.may_reanalyze()
  context.pool.handles[ActorId(REANALYZE_WORKER, 0)] = actor("restarted", "run")
  reanalyze_calls.request(context)
  assert len(context.pool.reanalyze_workers[0].run.asked) == 1


def test_search_is_not_written_into_a_restarted_replay():
  context = make(num_workers=1)
  act(context, 64)
  publish_target(context)
  reanalyze_calls.request(context)
  old = context.pool.shards[0]
  context.pool.handles[ActorId(REPLAY)] = actor("replay", "positions", "write_back")
  context.calls.arrive("worker_0.run/1/1", (8, {}))
  assert not old.write_back.asked
  assert not context.pool.shards[0].write_back.asked
  assert context.ledger.pacer.reanalyze.done == 8


def test_replay_that_cannot_sample_gets_no_request():
  context = make()
  act(context, 64)
  publish_target(context)
  context.ledger.shards.can_sample = False
  reanalyze_calls.request(context)
  assert not context.pool.shards[0].positions.asked
  assert context.ledger.pacer.may_reanalyze()
  context.ledger.shards.can_sample = True
  reanalyze_calls.request(context)
  assert len(context.pool.shards[0].positions.asked) == 4


@pytest.mark.parametrize("learner_steps", [10, 1000])
def test_without_a_ratio_nothing_is_requested(learner_steps):
  context = make(ratio=0)
  act(context, 64)
  reanalyze_calls.request(context)
  update(context, learner_steps)
  assert not context.pool.server.parameters.asked
  assert not context.calls.pending


def test_a_call_without_positions_is_waived():
  """Every stored position may be newer than the target network; acting must not wait for reanalyze then."""
  context = make(num_workers=1)
  act(context, 16)
  publish_target(context)
  reanalyze_calls.request(context)
  pacer, asked = context.ledger.pacer, context.pool.shards[0].write_back.asked
  assert not pacer.may_reanalyze()
  for number in (1, 2):
    assert context.calls.arrive(f"worker_0.run/{number}/1", (0, {})) == []
  assert not asked
  assert context.ledger.searches_in_flight[0] == 0
  assert (pacer.reanalyze.done, pacer.reanalyze.requested) == (0, 0)
  assert not pacer.may_reanalyze()  # nothing is due until more steps are produced
  act(context, 8)
  assert pacer.may_reanalyze()
