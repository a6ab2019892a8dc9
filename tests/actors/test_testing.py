"""Evaluations as the driver sees them: the best one has a checkpoint, or is none."""

import types

import numpy as np
import pytest

from moozi.actors import testing as evaluations
from moozi.io.config import load_config
from moozi.run.events import Evaluated, StateReady
from tests.actors.in_process_ray import RAY, Reference
from tests.actors.test_reanalyze_calls import Calls


def result(mean):
  return types.SimpleNamespace(returns=np.array([mean]), env_steps=100)


@pytest.fixture
def made():
  """Evaluations that have the states given as the parameter server's, one after another."""
  states, results, calls = [], [], Calls()
  pool = types.SimpleNamespace(
    tester=types.SimpleNamespace(run=types.SimpleNamespace(remote=lambda *_: results[-1])),
    server=types.SimpleNamespace(get_state=types.SimpleNamespace(remote=lambda: states[-1])),
  )
  config = load_config(None, ["evaluation.period_env_steps=100"]).evaluation
  counters = {"env_steps": 200, "learner_steps": 9}
  testing = evaluations.Testing(RAY, pool, calls, config, lambda: counters, {})

  def evaluate(number, mean, state):
    states.append(state)
    results.append(f"result {number}")
    testing.ask_due("params", 100 * number)
    return calls.come(results[-1], result(mean))

  return testing, evaluate


STATE = types.SimpleNamespace(learner_step=7)


def test_a_better_one_comes_with_its_state(made):
  _, evaluate = made
  for number, (mean, is_best) in enumerate([(1.0, True), (0.5, False), (2.0, True)], start=1):
    events = evaluate(number, mean, Reference(STATE))
    assert [type(event) for event in events] == [Evaluated, StateReady][: 1 + is_best]
  assert events[1].is_best
  assert (events[1].env_steps, events[1].learner_steps) == (100, 7)


@pytest.mark.parametrize("error", [RAY.exceptions.ActorDiedError("ab"), RAY.exceptions.ObjectLostError()])
def test_one_whose_state_is_lost_is_told_and_is_not_the_best(made, error):
  testing, evaluate = made
  (event,) = evaluate(1, 5.0, Reference(error=error))
  assert isinstance(event, Evaluated)
  assert len(evaluate(2, 1.0, Reference(STATE))) == 2, "the best that there is a checkpoint of"
  assert testing.get_state()["best/mean"] == 1.0
