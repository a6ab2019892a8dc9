"""Tests of the schedule of evaluations and of their events."""

import dataclasses
import types

import numpy as np
import pytest

from moozi.core.config import Config
from moozi.core.errors import EnvError
from moozi.evaluation.evaluator import EvaluationResult
from moozi.run.evaluation_schedule import BEST_BOUND, LAST_MEAN, Evaluations, has_reached
from moozi.run.events import Evaluated, Faulted, StateReady

TRAINING = types.SimpleNamespace(learner_step=7)


def make(progress=None, **checkpoint):
  config = Config(evaluation={"period_env_steps": 100}, checkpoint=checkpoint)
  return Evaluations(config, lambda: {"env_steps": 150, "learner_steps": 9}, progress or {})


@pytest.mark.parametrize("max_env_steps", [1, 100, 250, 300, 330])
def test_last_step_has_the_final_evaluation_alone(max_env_steps):
  config = Config(evaluation={"period_env_steps": 100}, max_env_steps=max_env_steps)
  evaluations = Evaluations(config, dict, {})
  due = [steps for steps in range(0, max_env_steps + 40, 10) if evaluations.is_due(steps)]
  assert due == list(range(100, max_env_steps, 100))
  evaluations.repeat()
  assert not evaluations.is_due(max_env_steps)
  # A resumed run that may make more steps has no evaluation of a step that has its final one.
  longer = Config(evaluation={"period_env_steps": 100}, max_env_steps=1000)
  done = Evaluations(config, dict, {})
  done.is_due(max_env_steps)
  resumed = Evaluations(longer, dict, done.get_state() | {"pacer/env_steps": max_env_steps})
  assert not resumed.is_due(max_env_steps)
  assert resumed.is_due(max_env_steps // 100 * 100 + 100)


def test_keep_best_false_saves_no_state():
  (event,) = make(keep_best=False).record(result(2.0), False, lambda: pytest.fail("not needed"))
  assert isinstance(event, Evaluated)


def stopping_at(value, progress=None):
  counters = {"env_steps": 150, "learner_steps": 9}
  return Evaluations(Config(evaluation={"stop_value": value}), lambda: counters, progress or {})


def test_the_mean_of_an_evaluation_during_the_run_reaches_the_stop_value():
  evaluations = stopping_at(2.0)
  assert not evaluations.is_reached
  for mean, is_final, expected in ((1.9, False, False), (5.0, True, False), (2.0, False, True)):
    evaluations.record(result(mean), is_final, lambda: None)
    assert evaluations.is_reached is expected
  evaluations.record(EnvError("failed"), False, lambda: None)
  assert evaluations.is_reached
  # A resumed run that was stopped before its final evaluation makes it; one with a larger value continues.
  saved = evaluations.get_state()
  assert [stopping_at(value, saved).is_reached for value in (2.0, 2.1, None)] == [True, False, False]
  for value, expected in ((2.0, True), (2.1, False), (None, False)):
    assert has_reached(Config(evaluation={"stop_value": value}), saved) is expected
  assert LAST_MEAN not in stopping_at(None).get_state()


def result(mean, env_steps=120):
  returns = np.array([mean - 1.0, mean + 1.0])
  return EvaluationResult(returns, np.array([3, 3]), 2, 7, env_steps, None)


def test_best_result_saves_the_state_that_played_it():
  evaluations = make()
  (event, state) = evaluations.record(result(2.0), False, lambda: TRAINING)
  assert isinstance(event, Evaluated)
  assert not event.is_final
  assert (event.env_steps, event.learner_steps) == (150, 9)
  assert isinstance(state, StateReady)
  assert state.is_best
  assert state.best_bound == result(2.0).lower_bound
  assert state.state.training is TRAINING
  # The counters are those of the evaluated parameters.
  assert (state.env_steps, state.learner_steps) == (120, 7)
  for mean in (2.0, 1.0):
    (event,) = evaluations.record(result(mean), True, lambda: pytest.fail("it is not the best"))
    assert event.is_final
  assert len(evaluations.record(result(2.5), False, lambda: TRAINING)) == 2


def test_best_is_not_the_luckiest_of_few_episodes():
  evaluations = make()
  steady = EvaluationResult(np.full(10, 30.0), np.full(10, 3), 10, 7, 120, None)
  lucky = EvaluationResult(np.array([0.0, 80.0] * 5), np.full(10, 3), 10, 8, 240, None)
  assert len(evaluations.record(steady, False, lambda: TRAINING)) == 2
  assert lucky.returns.mean() > steady.returns.mean()
  assert len(evaluations.record(lucky, False, lambda: pytest.fail("its interval starts at 15"))) == 1


def test_pictures_that_cannot_be_drawn_are_noted_once():
  evaluations = make(keep_best=False)
  faulty = dataclasses.replace(result(2.0), picture_fault="env.name=a: its picture cannot be drawn: b")
  event, note = evaluations.record(faulty, False, lambda: TRAINING)
  assert isinstance(event, Evaluated)
  assert isinstance(note, Faulted)
  assert note.message == (
    "testing_worker: env.name=a: its picture cannot be drawn: b; its frames are drawn instead"
  )
  assert len(evaluations.record(faulty, True, lambda: TRAINING)) == 1


def test_a_fault_in_the_games_of_the_gate_keeps_the_evaluation():
  evaluations = make(keep_best=False)
  faulty = dataclasses.replace(result(2.0), gate_fault="env.name=a: b")
  event, fault = evaluations.record(faulty, False, lambda: TRAINING)
  assert isinstance(event, Evaluated)
  assert isinstance(fault, Faulted)
  assert fault.counts == {"env_errors": 1}
  assert fault.message == "testing_worker: no games for the gate: env.name=a: b"


def test_lost_state_keeps_the_best():
  evaluations = make()
  evaluations.record(result(2.0), False, lambda: TRAINING)
  assert [type(e) for e in evaluations.record(result(5.0), False, lambda: None)] == [Evaluated]
  assert len(evaluations.record(result(3.0), False, lambda: TRAINING)) == 2


def test_stopped_final_evaluation_ends_as_stopped():
  evaluations = make()
  evaluations.record(result(2.0), False, lambda: TRAINING)
  assert evaluations.reason_at_end("max_env_steps") == "stopped"
  evaluations.record(None, True, lambda: TRAINING)
  assert evaluations.reason_at_end("max_env_steps") == "stopped"
  evaluations.record(result(1.0), True, lambda: TRAINING)
  assert evaluations.reason_at_end("max_wall_s") == "max_wall_s"
  evaluations = make()
  evaluations.record(EnvError("it fell"), True, lambda: TRAINING)
  assert evaluations.reason_at_end("max_env_steps") == "max_env_steps"


def test_resume_restores_schedule_and_best():
  evaluations = make()
  assert evaluations.is_due(130)
  evaluations.record(result(2.0), False, lambda: TRAINING)
  again = make(evaluations.get_state() | {"env_steps": 130.0})
  assert not again.is_due(199)
  assert len(again.record(result(1.5), False, lambda: TRAINING)) == 1
  assert len(again.record(result(2.5), False, lambda: TRAINING)) == 2
  assert make(evaluations.get_state(is_pending=True)).is_due(130)


def test_a_shorter_period_applies_at_once():
  progress = {"env_steps": 130.0, "evaluations/next": 1e9, BEST_BOUND: 0.5}
  assert not make(progress).is_due(199)
  assert make(progress).is_due(200)
  assert not make(progress | {"evaluations/next": 200.0}).is_due(199)
