"""Which evaluations are due, which is the best, and what is told of each."""

import types

import numpy as np
import pytest

from moozi.core.config import EvaluationConfig
from moozi.core.errors import EnvError
from moozi.evaluation.evaluator import EvaluationResult
from moozi.run.evaluation_schedule import Evaluations
from moozi.run.events import Evaluated, Faulted, StateReady

TRAINING = types.SimpleNamespace(learner_step=7)


def make(progress=None):
  config = EvaluationConfig(period_env_steps=100)
  return Evaluations(config, lambda: {"env_steps": 150, "learner_steps": 9}, progress or {})


def result(mean, env_steps=120):
  returns = np.array([mean - 1.0, mean + 1.0])
  return EvaluationResult(returns, np.array([3, 3]), 2, 7, env_steps, None)


def test_each_result_is_told_and_the_best_one_with_the_state_that_played_it():
  evaluations = make()
  (told, state) = evaluations.record(result(2.0), False, lambda: TRAINING)
  assert isinstance(told, Evaluated)
  assert not told.is_final
  assert (told.env_steps, told.learner_steps) == (150, 9)
  assert isinstance(state, StateReady)
  assert state.is_best
  assert state.state.training is TRAINING
  assert (state.env_steps, state.learner_steps) == (120, 7)  # what was played, not where the run is now
  for mean in (2.0, 1.0):
    (told,) = evaluations.record(result(mean), True, lambda: pytest.fail("it is not the best"))
    assert told.is_final
  assert len(evaluations.record(result(2.5), False, lambda: TRAINING)) == 2


def test_a_best_state_that_is_lost_leaves_the_best_as_it_was():
  evaluations = make()
  evaluations.record(result(2.0), False, lambda: TRAINING)
  assert [type(e) for e in evaluations.record(result(5.0), False, lambda: None)] == [Evaluated]
  assert len(evaluations.record(result(3.0), False, lambda: TRAINING)) == 2


def test_an_env_that_fails_costs_its_evaluation_and_nothing_else():
  evaluations = make()
  assert evaluations.is_due(100)
  (event,) = evaluations.record(EnvError("it fell"), False, lambda: pytest.fail("nothing was played"))
  assert isinstance(event, Faulted)
  assert event.counts == {"env_errors": 1}
  assert "it fell" in event.message
  assert not evaluations.is_due(199)
  assert evaluations.is_due(200)


def test_a_run_that_is_stopped_in_its_last_evaluation_is_not_done():
  evaluations = make()
  evaluations.record(result(2.0), False, lambda: TRAINING)
  assert evaluations.reason_at_end("max_env_steps") == "stopped"
  evaluations.record(None, True, lambda: TRAINING)
  assert evaluations.reason_at_end("max_env_steps") == "stopped"
  evaluations.record(result(1.0), True, lambda: TRAINING)
  assert evaluations.reason_at_end("max_wall_s") == "max_wall_s"
  evaluations = make()
  evaluations.record(EnvError("it fell"), True, lambda: TRAINING)
  assert evaluations.reason_at_end("max_env_steps") == "max_env_steps", "it would fall again"


@pytest.mark.parametrize("is_final", [False, True])
def test_one_that_was_stopped_is_made_again_but_for_the_one_at_the_end(is_final):
  evaluations = make()
  assert evaluations.is_due(100)
  assert evaluations.record(None, is_final, lambda: TRAINING) == []
  assert evaluations.is_due(100) is not is_final


def test_a_resumed_run_goes_on_with_its_schedule_and_its_best():
  evaluations = make()
  assert evaluations.is_due(130)
  evaluations.record(result(2.0), False, lambda: TRAINING)
  again = make(evaluations.get_state())
  assert not again.is_due(199)
  assert len(again.record(result(1.5), False, lambda: TRAINING)) == 1
  assert len(again.record(result(2.5), False, lambda: TRAINING)) == 2
  assert make(evaluations.get_state(is_pending=True)).is_due(130)
