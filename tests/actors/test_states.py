"""The run's state, put together from parts that come when they come."""

import types

import pytest

from moozi.actors.states import States
from moozi.io.config import load_config
from tests.actors.test_reanalyze_calls import Calls, actor


@pytest.fixture
def made():
  pool = types.SimpleNamespace(server=actor("server", "get_state"), replay=actor("replay", "snapshot"))
  calls, config = Calls(), load_config(None, ["learner.batch_size=10"])
  progress = {"pacer/env_steps": 0, "pacer/samples_done": 0}
  return calls, States(pool, calls, config, lambda: None, lambda: dict(progress), lambda: iter(()), None)


def training(learner_step):
  return types.SimpleNamespace(learner_step=learner_step)


def snapshot(num_added):
  return types.SimpleNamespace(num_added=num_added)


def test_counters_are_those_of_the_parts(made):
  calls, states = made
  states.not_added = -30
  states.ask(is_final=True)
  assert calls.come("replay.snapshot/1/0", snapshot(70)) == []
  assert states.is_asked
  assert not states.has_final
  (event,) = calls.come("server.get_state/1/0", training(8))
  assert (event.env_steps, event.learner_steps, event.is_final) == (100, 8, True)
  assert event.state.progress == {"pacer/env_steps": 100, "pacer/samples_done": 80}
  assert (states.is_asked, states.has_final) == (False, True)


@pytest.mark.parametrize("late", ["server.get_state", "replay.snapshot"])
def test_what_was_asked_before_an_actor_was_made_anew_is_left_out(made, late):
  calls, states = made
  first = "replay.snapshot" if late == "server.get_state" else "server.get_state"
  values = {"server.get_state": training(8), "replay.snapshot": snapshot(70)}
  states.ask(is_final=False)
  assert calls.come(f"{first}/1/0", values[first]) == []
  states.forget()
  states.skip_versions(6)
  assert not states.is_asked
  states.ask(is_final=False)
  assert calls.come(f"{late}/1/0", values[late]) == [], "its counters are those of before"
  assert states.is_asked
  values = {"server.get_state": training(16), "replay.snapshot": snapshot(90)}
  assert calls.come(f"{first}/2/0", values[first]) == []
  (event,) = calls.come(f"{late}/2/0", values[late])
  assert event.state.progress == {"pacer/env_steps": 90, "pacer/samples_done": 100}


def test_a_part_that_is_lost_makes_room_for_the_next_ask_and_only_for_its_own(made):
  calls, states = made
  states.ask(is_final=False)
  calls.lose("server.get_state/1/0")
  assert not states.is_asked
  states.ask(is_final=False)
  calls.lose("replay.snapshot/1/0")
  assert states.is_asked, "the second ask is under way"


def test_what_the_state_holds_is_told_before_it(made):
  calls, states = made
  states._first = lambda: iter(["a segment"])
  states.ask(is_final=False)
  assert calls.come("server.get_state/1/0", training(8)) == [], "replay's part may hold another one still"
  segment, state = calls.come("replay.snapshot/1/0", snapshot(70))
  assert (segment, state.env_steps) == ("a segment", 70)
