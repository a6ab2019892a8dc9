"""Tests of the gate for new parameters: a run, and its continuation."""

import types

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.io.config import load_config
from moozi.run.events import Acted, Evaluated, StateReady
from moozi.run.gate import Gate, check_gate, make_gate
from moozi.run.state import RunState
from moozi.training.checks import check_players
from tests.run.conftest import local_run
from tests.run_events import assert_equal_trees, final_state

GAME = "env.name=tests.envs.environments:make_nim"
RUN = ("env.name=open_spiel:tic_tac_toe", "targets.discount=1", "evaluation.gate_episodes=6")


def gate_of(score: float) -> Gate:
  return make_gate(load_config(None, [GAME, f"evaluation.gate_score={score}"]), None)


def check(*overrides):
  config = load_config(None, overrides)
  check_players(config, registry.env_spec(config.env.name))


def acting_versions(events):
  """Returns the version of the parameters that acted in each segment."""
  return [e.learner_steps - e.staleness for e in events if isinstance(e, Acted)]


def test_scores_from_the_threshold_on_are_admitted():
  gate = gate_of(0.55)
  assert [gate.admits(score) for score in (None, 0.0, 0.5, 0.55, 1.0)] == [False, False, False, True, True]


def test_first_parameters_act_until_others_are_admitted():
  gate = gate_of(0.55)
  assert gate.begin(("first", 3)) == ("first", 3)
  assert gate.begin(("second", 5)) == ("first", 3)
  gate.acting = "second", 5
  assert gate.begin(("third", 7)) == ("second", 5)


def test_runs_without_a_score_have_no_gate():
  assert make_gate(load_config(None, [GAME]), None) is None


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"variables/w": np.full(2, np.nan)}, "gate/variables/w"),
    ({"variables/w": np.zeros(3)}, "gate/variables/w"),
    ({"version": -1}, "gate/version"),
    ({"extra": 1}, "gate/extra"),
  ],
)
def test_invalid_states_are_refused(change, message):
  gate, variables = gate_of(0.5), {"w": np.ones(2)}
  gate.begin((variables, 4))
  check_gate(gate.get_state(), variables)
  with pytest.raises(ValueError, match=message):
    check_gate(gate.get_state() | change, variables)


@pytest.mark.parametrize(
  ("overrides", "message"),
  [
    (("env.name=tiny:catch",), "evaluation.gate_score=0.5: must be null with env.name=tiny:catch"),
    ((GAME, "algorithm=ppo"), "evaluation.gate_score=0.5 needs algorithm=muzero or alphazero or q_learning"),
    (
      (GAME, "offline.trajectories=runs/one", "offline.fraction=1"),
      "evaluation.gate_score=0.5: no worker acts with offline.fraction=1",
    ),
    (
      (GAME, "max_env_steps=500", "evaluation.period_env_steps=500"),
      "evaluation.period_env_steps=500: must be below max_env_steps=500 with evaluation.gate_score=0.5",
    ),
  ],
)
def test_runs_that_cannot_have_a_gate_are_refused(overrides, message):
  with pytest.raises(UserError, match=message):
    check(*overrides, "evaluation.gate_score=0.5")


@pytest.mark.slow
@pytest.mark.parametrize("score", [0, 1])
def test_parameters_act_from_the_evaluation_that_admits_them(score):
  """A score of 0 admits all parameters, and a score of 1 those that win every game."""
  pytest.importorskip("pyspiel")
  acting, found = 0, []
  for event in local_run(*RUN, f"evaluation.gate_score={score}"):
    if isinstance(event, Evaluated):
      assert event.result.summary()["gate_score"] == event.result.gate_score
      found.append(event.result.gate_score >= score)
      acting = event.learner_steps if found[-1] else acting
    elif isinstance(event, Acted):
      assert event.learner_steps - event.staleness == acting
  assert len(found) == 3
  assert all(found) == (score == 0)


@pytest.mark.slow
def test_resumes_to_the_bit():
  """Parameters that no evaluation has seen do not act in the resumed run."""
  pytest.importorskip("pyspiel")
  settings = (*RUN, "evaluation.gate_score=0")
  events = local_run(*settings)
  saved = next(e.state for e in events if isinstance(e, StateReady) and not e.is_best)
  assert 0 < int(saved.progress["gate/version"]) < saved.learner_steps
  again = local_run(*settings, state=saved)
  versions = acting_versions(again)
  assert versions == acting_versions(events)[-len(versions) :]
  assert versions[0] == saved.progress["gate/version"]
  states = final_state(events), final_state(again)
  assert_equal_trees(*(state.training for state in states))
  assert_equal_trees(*(make_gate(load_config(None, [*settings]), state).acting for state in states))


def test_a_run_without_a_gate_gets_one():
  state = RunState(training=types.SimpleNamespace(variables={}), progress={"wall_s": 1.0})
  assert make_gate(load_config(None, [GAME, "evaluation.gate_score=0.5"]), state).acting is None
