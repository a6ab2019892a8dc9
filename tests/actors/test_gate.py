"""A run with a gate for new parameters in the driver, with a fake `ray` module, and its continuation."""

import pytest

from moozi.actors import driver
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import Acted, Evaluated, Faulted
from moozi.run.gate import Gate
from moozi.run.session import RunInputs
from tests.actors import in_process_ray
from tests.run_events import final_state
from tests.tiny_run import TINY

pytestmark = pytest.mark.slow
pytest.importorskip("pyspiel")
RUN = (
  *(*TINY, "env.name=open_spiel:tic_tac_toe", "targets.discount=1", "evaluation.gate_episodes=4"),
  *("evaluation.period_env_steps=96", "evaluation.final_episodes=4"),
)


def run(*overrides, state=None, ray=None):
  config = load_config(None, [*RUN, *overrides])
  with in_process_ray.connected(ray):
    return list(driver.run(RunInputs(config, build.env_spec(config), state=state)))


def acted(events):
  return [e.learner_steps - e.staleness for e in events if isinstance(e, Acted)]


@pytest.mark.parametrize("past_share", [0, 0.5])
def test_admitted_parameters_act(past_share):
  events = run("evaluation.gate_score=0", f"opponents.past_share={past_share}")
  scores = [e.result.gate_score for e in events if isinstance(e, Evaluated)]
  assert len(scores) > 2
  assert None not in scores
  versions = acted(events)
  assert versions[0] == 0
  assert versions[-1] > 0
  assert versions == sorted(versions)
  # The first parameters, and those of each evaluation but the final one.
  assert len({*versions}) <= len(scores)
  state = final_state(events)
  assert state.progress["gate/version"] >= versions[-1]
  again = run("evaluation.gate_score=1", "max_env_steps=416", state=state)
  assert acted(again)[0] == state.progress["gate/version"]


@pytest.fixture
def admits_none(monkeypatch):
  monkeypatch.setattr(Gate, "admits", lambda self, score: False)


@pytest.mark.usefixtures("admits_none")
def test_parameters_that_are_not_admitted_do_not_act():
  events = run("evaluation.gate_score=1")
  assert {*acted(events)} == {0}
  assert final_state(events).progress["gate/version"] == 0


@pytest.mark.usefixtures("admits_none")
@pytest.mark.parametrize(("name", "number"), [("update", 4), ("parameters", 1)])
def test_the_first_parameters_act_after_a_restart_of_the_parameter_server(name, number):
  ray = in_process_ray.Ray({("ParameterServer", name): {number}})
  events = run("evaluation.gate_score=1", ray=ray)
  (fault,) = [event for event in events if isinstance(event, Faulted)]
  assert fault.counts["parameter_server"] == 1
  # A restart before the first parameters makes them again, with a new version.
  first = 0 if name == "update" else fault.learner_steps
  assert {*acted(events)} == {first}
  assert final_state(events).progress["gate/version"] == first
