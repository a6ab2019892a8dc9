"""Tests of the rounds of an on-policy run, with fake actors: order, lost segments, refusals, lost updates."""

import types

import numpy as np
import pytest

from moozi.acting.lanes import ActingResult
from moozi.actors import rounds, states, updates
from moozi.actors.round_ledger import Phase
from moozi.baselines.ppo.algorithm import PARTS
from moozi.core.actor_report import SERVER, TESTING_WORKER, WORKER, ActorId
from moozi.core.errors import NotFiniteError, SegmentError
from moozi.io.config import load_config
from moozi.run.events import Acted, Collected, Faulted, Updated
from moozi.run.on_policy import Part
from moozi.run.state import RunState
from tests.actors.fakes import actor, make_context
from tests.actors.in_process_ray import ActorDiedError, RayActorError

CONFIG = load_config(
  None,
  [
    *("algorithm=ppo", "ppo.num_envs=6", "ppo.segment_length=8", "ppo.num_minibatches=2"),
    *("workers.num_workers=3", "max_env_steps=96", "replay.max_refused_segments=2"),
    *("evaluation.period_env_steps=48", "checkpoint.first_s=null", "checkpoint.period_s=1e9"),
  ],
)


def training(learner_step):
  return types.SimpleNamespace(learner_step=np.int32(learner_step))


def make(config=CONFIG, saved=None):
  handles = {ActorId(WORKER, i): actor(f"worker_{i}", "run", "reset") for i in range(3)}
  handles[SERVER] = actor("server", "parameters", "learn", "get_state", "roll_back")
  return make_context(config, handles, parts=PARTS, latest=lambda: saved)


def part(index, refused=None, version=0, steps=None):
  returns = np.array([float(index)])
  return Part(ActingResult(16, version, returns, np.array([4]), {"m": float(index)}), refused, steps)


def begin(context, number=1):
  """Begins round `number` and requests its segments; `number` counts the parameters' requests."""
  rounds.request(context)
  assert context.ledger.phase is Phase.PUBLISHING
  context.calls.arrive(f"server.parameters/{number}/0", ("variables", 0))
  assert context.ledger.phase is Phase.ACTING
  rounds.request(context)


def arrive(context, index, call=1, **kwargs):
  return list(context.calls.arrive(f"worker_{index}.run/{call}/1", part(index, **kwargs)))


def lose(context, index, error, call=1):
  return list(context.calls.lose(f"worker_{index}.run/{call}/1", error))


def learned(context, call=1, learner_step=8):
  return list(context.calls.arrive(f"server.learn/{call}/0", (192, learner_step, {"loss/total": 1.0})))


def test_segments_are_ordered_by_worker_and_counted_when_all_have_arrived():
  context = make()
  begin(context)
  for i in range(3):
    assert context.pool.workers[i].run.asked == [("server.parameters/1/0", 0)]
  assert arrive(context, 2) == []
  assert arrive(context, 0) == []
  assert context.ledger.env_steps == 0
  events = arrive(context, 1)
  assert [type(e) for e in events] == [Acted] * 3
  assert [(e.env_steps, e.metrics["m"], e.episode_returns[0]) for e in events] == [
    *((16, 0.0, 0.0), (32, 1.0, 1.0), (48, 2.0, 2.0)),
  ]
  # The server receives the rollouts in the order of workers, and the steps before the round.
  rollouts = [f"worker_{i}.run/1/0" for i in range(3)]
  assert context.pool.server.learn.asked == [(0, 0.0, *rollouts)]
  assert context.ledger.phase is Phase.LEARNING
  rounds.request(context)
  assert not any(len(context.pool.workers[i].run.asked) > 1 for i in range(3))
  (event,) = learned(context)
  assert isinstance(event, Updated)
  assert (event.env_steps, event.learner_steps, event.num_samples, event.sample_reuse) == (48, 8, 192, 4.0)
  begin(context, number=2)
  assert context.pool.workers[0].run.asked[1:] == [("server.parameters/2/0", 48)]
  assert not context.ledger.is_complete(has_calls=True)
  for i in range(3):
    arrive(context, i, call=2, version=8)
  assert context.pool.server.learn.asked[1][0] == 48
  assert context.ledger.is_complete(has_calls=True)


def test_a_round_has_the_share_of_the_time_that_has_passed():
  context = make(CONFIG.model_copy(update={"max_wall_s": 120.0}))
  context.session.wall_s = lambda: 30.0
  begin(context)
  for i in range(3):
    arrive(context, i)
  assert context.pool.server.learn.asked[0][:2] == (0, 0.25)


@pytest.mark.parametrize(("error", "resets"), [(ActorDiedError("00"), 0), (RayActorError("unavailable"), 1)])
def test_a_lost_segment_is_collected_again_by_its_worker_only(error, resets):
  context = make()
  begin(context)
  arrive(context, 0)
  (event,) = lose(context, 1, error)
  assert isinstance(event, Faulted)
  assert (event.counts, event.env_steps) == ({"dropped_steps": 16}, 0)
  assert event.message == "training_worker_1: the segment in flight was lost"
  assert len(context.pool.workers[1].reset.asked) == resets
  rounds.request(context)
  assert [len(context.pool.workers[i].run.asked) for i in range(3)] == [1, 2, 1]
  # The same parameters, and the steps before the round.
  assert context.pool.workers[1].run.asked[1] == context.pool.workers[1].run.asked[0]
  assert arrive(context, 2) == []
  events = arrive(context, 1, call=2)
  assert [e.env_steps for e in events] == [16, 32, 48]
  assert context.pool.server.learn.asked == [
    (0, 0.0, "worker_0.run/1/0", "worker_1.run/2/0", "worker_2.run/1/0"),
  ]


def test_only_the_first_worker_acts_until_the_others_are_started():
  context = make()
  others = {i: context.pool.handles.pop(ActorId(WORKER, i)) for i in (1, 2)}
  context.ledger.cold_workers.add(0)
  begin(context)
  assert context.ledger.cold_workers == {0}
  arrive(context, 0)
  assert not context.ledger.cold_workers
  assert context.pool.server.learn.asked == []
  context.pool.handles.update({ActorId(WORKER, i): handle for i, handle in others.items()})
  rounds.request(context)
  assert [len(context.pool.workers[i].run.asked) for i in range(3)] == [1, 1, 1]


def test_a_refused_segment_costs_the_round_and_resets_all_workers():
  context = make()
  for number in (1, 2):
    begin(context, number)
    arrive(context, 0, call=number)
    arrive(context, 2, call=number)
    last = context.calls.arrive(f"worker_1.run/{number}/1", part(1, refused="frame is not finite"))
    if number == 1:
      *acted, fault = last
      assert [e.env_steps for e in acted] == [16, 32, 48]
      assert fault.counts == {"refused_segments": 1, "lost_steps": 48}
      assert [len(context.pool.workers[i].reset.asked) for i in range(3)] == [1, 1, 1]
    else:
      # The events come before the error, which ends the run.
      seen = []
      with pytest.raises(SegmentError, match="training_worker_1: 2 segments in a row were refused"):
        seen.extend(last)
  assert context.pool.server.learn.asked == []
  assert context.ledger.env_steps == 96


def test_kept_segments_are_those_of_good_rounds():
  context = make()
  begin(context)
  arrive(context, 1, steps="steps of 1")
  arrive(context, 2, steps="steps of 2")
  kept = [e for e in arrive(context, 0, steps="steps of 0") if isinstance(e, Collected)]
  assert [(e.segment, e.first_lane, e.follows) for e in kept] == [
    *(("steps of 0", 0, True), ("steps of 1", 2, True), ("steps of 2", 4, True)),
  ]
  learned(context)
  begin(context, number=2)
  for i in (0, 1):
    arrive(context, i, call=2, steps="steps")
  last = arrive(context, 2, call=2, steps="steps", refused="frame is not finite")
  assert not any(isinstance(e, Collected) for e in last)


def test_a_round_of_lost_parameters_has_no_update():
  context = make()
  begin(context)
  arrive(context, 0)
  arrive(context, 1)
  updates.rewind(context, found=0)
  events = arrive(context, 2)
  assert isinstance(events[-1], Faulted)
  assert events[-1].counts == {"lost_steps": 48}
  assert (context.ledger.env_steps, context.pool.server.learn.asked) == (48, [])
  assert context.ledger.phase is Phase.IDLE


def test_a_round_whose_update_is_lost_is_not_repeated():
  context = make()
  begin(context)
  for i in range(3):
    arrive(context, i)
  (event,) = list(context.calls.lose("server.learn/1/0", ActorDiedError("00")))
  assert (event.counts, event.env_steps) == ({"lost_steps": 48}, 48)
  assert context.ledger.phase is Phase.IDLE
  begin(context, number=2)
  assert [len(context.pool.workers[i].run.asked) for i in range(3)] == [2, 2, 2]


def test_parameters_published_before_a_rewind_are_not_acted_with():
  context = make()
  rounds.request(context)
  updates.rewind(context, found=0)
  context.calls.arrive("server.parameters/1/0", ("variables", 0))
  assert context.ledger.phase is Phase.IDLE
  rounds.request(context)
  assert context.ledger.phase is Phase.PUBLISHING


def test_updates_that_are_not_finite_roll_back_once():
  saved = RunState(training=training(4))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr("moozi.run.rollback.replace", lambda state, learner_step: training(learner_step))
    context = make(saved=saved)
    begin(context)
    for i in range(3):
      arrive(context, i)
    learned(context, learner_step=8)
    begin(context, number=2)
    for i in range(3):
      arrive(context, i, call=2)
    error = NotFiniteError("loss/policy is not finite", {"skipped_updates": 8})
    (event,) = list(context.calls.lose("server.learn/2/0", error))
    assert event.counts == {"rollbacks": 1, "lost_updates": 4, "skipped_updates": 8}
    # No worker has seen a version above 8.
    assert context.pool.server.roll_back.asked[0][0].learner_step == 9
    assert context.ledger.learner_steps == 9
    begin(context, number=4)
    for i in range(3):
      arrive(context, i, call=3)
    with pytest.raises(NotFiniteError, match="loss/policy"):
      list(context.calls.lose("server.learn/3/0", error))


def test_an_incomplete_round_is_dropped_at_the_end():
  context = make()
  begin(context)
  assert list(rounds.drop(context)) == []
  context = make()
  begin(context)
  arrive(context, 0)
  arrive(context, 2)
  assert lose(context, 1, None)[0].counts == {"dropped_steps": 16}
  (event,) = rounds.drop(context)
  assert (event.counts, event.env_steps) == ({"dropped_steps": 32}, 0)
  assert context.ledger.missing == [0, 1, 2]


def test_states_are_requested_between_rounds_and_count_complete_rounds():
  context = make(
    CONFIG.model_copy(update={"checkpoint": CONFIG.checkpoint.model_copy(update={"period_s": 1e-9})})
  )
  rounds.request(context)
  # The state is that before the next update: the server executes its calls in order.
  (event,) = context.calls.arrive("server.get_state/1/0", training(0))
  assert (event.env_steps, event.learner_steps, event.state.replay) == (0, 0, None)
  context.calls.arrive("server.parameters/1/0", ("variables", 0))
  rounds.request(context)
  for i in range(3):
    arrive(context, i)
  rounds.request(context)
  assert len(context.pool.server.get_state.asked) == 1
  learned(context)
  rounds.request(context)
  (event,) = context.calls.arrive("server.get_state/2/0", training(8))
  assert (event.env_steps, event.learner_steps) == (48, 8)
  assert event.state.progress["env_steps"] == 48
  states.request(context, is_final=True)
  context.calls.arrive("server.get_state/3/0", training(8))
  assert context.ledger.has_final_state


def test_evaluations_are_requested_between_rounds():
  context = make()
  worker = actor("tester", "run")
  context.pool.handles[ActorId(TESTING_WORKER)] = worker
  begin(context)
  first = len(worker.run.asked)
  for i in range(3):
    arrive(context, i)
  learned(context)
  assert len(worker.run.asked) == first
  begin(context, number=2)
  assert [call[1] for call in worker.run.asked[first:]] == [48]
  assert worker.run.asked[-1][0] == "server.parameters/2/0"
