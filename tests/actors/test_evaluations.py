"""Tests of evaluations: a result counts as the best only if its training state can be saved."""

import dataclasses
import types
from typing import Any

import numpy as np
import pytest

from moozi.actors import evaluations
from moozi.core.actor_report import SERVER, TESTING_WORKER
from moozi.io.config import load_config
from moozi.run.events import Evaluated, StateReady
from tests.actors.fakes import actor, make_context
from tests.actors.in_process_ray import RAY, Reference


def result(mean):
  faults = {"picture_fault": "", "gate_fault": ""}
  return types.SimpleNamespace(
    returns=np.array([mean]), lower_bound=mean, env_steps=100, gate_score=mean, **faults
  )


@pytest.fixture
def made(request):
  """Returns a context and a function that completes one evaluation and returns its events."""
  overrides = getattr(request, "param", ())
  states, results = [], []
  worker, server = actor("worker", "run"), actor("server", "get_state", "parameters")
  worker.run.remote, server.get_state.remote = lambda *_: results[-1], lambda: states[-1]
  config = load_config(None, ["evaluation.period_env_steps=100", *overrides])
  context = make_context(config, {TESTING_WORKER: worker, SERVER: server})

  def evaluate(number, mean, state):
    states.append(state)
    results.append(f"result {number}")
    context.ledger.pacer.env_steps = 100 * number
    context.ledger.parameters = Reference((("evaluated", "averages"), 7))
    evaluations.request_due(context)
    return context.calls.arrive(results[-1], result(mean))

  return context, evaluate


@dataclasses.dataclass
class Training:
  params: Any = "newer"
  target_params: Any = "newer"
  net_state: Any = "newer"
  learner_step: Any = 9


STATE = Training()


def test_better_result_comes_with_its_state(made):
  _, evaluate = made
  for number, (mean, is_best) in enumerate([(1.0, True), (0.5, False), (2.0, True)], start=1):
    events = evaluate(number, mean, Reference(STATE))
    assert [type(event) for event in events] == [Evaluated, StateReady][: 1 + is_best]
  assert events[1].is_best
  assert (events[1].env_steps, events[1].learner_steps) == (100, 7)
  best = events[1].state.training
  assert (best.params, best.net_state) == ("evaluated", "averages")


@pytest.mark.parametrize("error", [RAY.exceptions.ActorDiedError("ab"), RAY.exceptions.ObjectLostError()])
def test_result_whose_state_is_lost_is_not_the_best(made, error):
  context, evaluate = made
  (event,) = evaluate(1, 5.0, Reference(error=error))
  assert isinstance(event, Evaluated)
  assert len(evaluate(2, 1.0, Reference(STATE))) == 2
  assert context.session.progress()["best/bound"] == 1.0


def test_a_server_that_hangs_is_ended_while_the_driver_waits_for_its_state(made):
  context, evaluate = made
  state = Reference(STATE)
  state.is_ready = False

  def end_hung():
    state.is_ready, state.error = True, RAY.exceptions.ActorDiedError("ab")

  context.pool.end_hung = end_hung
  (event,) = evaluate(1, 5.0, state)
  assert isinstance(event, Evaluated)


@pytest.mark.parametrize("made", [["evaluation.gate_score=0.5", "checkpoint.keep_best=false"]], indirect=True)
@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_parameters_from_before_a_rollback_are_not_admitted(made, is_rolled_back):
  context, _ = made
  context.pool.testing_worker.run.remote = lambda *_: "result"
  context.pool.server.get_state.remote = lambda: None
  context.pool.server.parameters.remote = lambda name: Reference(("newest", 7))
  context.ledger.gate.acting = "first", 0
  context.ledger.pacer.env_steps = 100
  evaluations.request_due(context)
  context.ledger.parameter_epoch += is_rolled_back
  context.calls.arrive("result", result(1.0))
  assert context.ledger.gate.acting == (("first", 0) if is_rolled_back else ("newest", 7))


@pytest.mark.parametrize("made", [["evaluation.network=target"]], indirect=True)
def test_target_network_is_evaluated_and_saved(made):
  context, evaluate = made
  asked = []
  averaged = Reference((("averaged", "averages"), 8))
  context.pool.server.parameters.remote = lambda name: asked.append(name) or averaged
  _, event = evaluate(1, 1.0, Reference(STATE))
  assert asked == ["target"]
  best = event.state.training
  assert (best.params, best.target_params, best.learner_step) == ("newer", "averaged", 8)


def test_one_evaluation_is_pending_at_a_time(made):
  context, _ = made
  asked = []
  context.pool.testing_worker.run.remote = lambda *args: asked.append(args) or "result"
  context.pool.server.get_state.remote = lambda: None
  context.ledger.pacer.env_steps = 100
  evaluations.request_due(context)
  context.ledger.pacer.env_steps = 200
  evaluations.request_due(context)
  assert len(asked) == 1
  context.calls.lose("result")
  evaluations.request_due(context)
  assert len(asked) == 2
