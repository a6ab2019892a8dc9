"""Tests that the driver assembles the run's state from parts that arrive at different times."""

import math
import types

import pytest

from moozi.actors import driver, states
from moozi.core.actor_report import REPLAY, SERVER
from moozi.core.flat_state import Snapshot
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import ActorReports, Started
from moozi.run.session import RunInputs
from tests.actors import in_process_ray
from tests.actors.fakes import actor, make_context
from tests.tiny_run import TINY


@pytest.fixture
def context():
  handles = {SERVER: actor("server", "get_state"), REPLAY: actor("replay", "snapshot")}
  config = load_config(
    None, ["learner.batch_size=10", "learner.updates_per_call=2", "ray.batches_in_flight=2"]
  )
  return make_context(config, handles)


def training(learner_step):
  return types.SimpleNamespace(learner_step=learner_step)


def snapshot(num_added):
  return Snapshot(head={"counter/added": num_added})


def counters(event):
  progress = event.state.progress
  return progress["pacer/env_steps"], progress["pacer/samples_done"]


def test_counters_are_those_of_the_parts(context):
  calls, ledger = context.calls, context.ledger
  ledger.shards.store(0, num_steps=30, num_lost=30)
  states.request(context, is_final=True)
  assert calls.arrive("replay.snapshot/1/0", snapshot(70)) == []
  assert ledger.is_state_pending
  assert not ledger.has_final_state
  (event,) = calls.arrive("server.get_state/1/0", training(8))
  assert (event.env_steps, event.learner_steps, event.is_final) == (100, 8, True)
  assert counters(event) == (100, 80)
  assert (ledger.is_state_pending, ledger.has_final_state) == (False, True)


@pytest.mark.parametrize("late", ["server.get_state", "replay.snapshot"])
def test_segment_that_replay_refuses_after_its_snapshot_is_not_counted(context, late):
  calls, ledger = context.calls, context.ledger
  arrivals = {"server.get_state": training(8), "replay.snapshot": snapshot(70)}
  states.request(context, is_final=False)
  for name in sorted(arrivals, key=lambda name: name == late):
    ledger.begin_segment(0)
    events = calls.arrive(f"{name}/1/0", arrivals[name])
    # Before the snapshot the steps of a refused segment count as steps of the run, after it they do not.
    ledger.store_segment(num_lost=ledger.segment_steps)
  expected = 70 + (ledger.segment_steps if late == "replay.snapshot" else 0)
  assert events[-1].env_steps == expected


@pytest.mark.parametrize("late", ["server.get_state", "replay.snapshot"])
def test_state_requested_before_a_rollback_is_dropped(context, late):
  calls, ledger = context.calls, context.ledger
  first = "replay.snapshot" if late == "server.get_state" else "server.get_state"
  values = {"server.get_state": training(8), "replay.snapshot": snapshot(70)}
  states.request(context, is_final=False)
  assert calls.arrive(f"{first}/1/0", values[first]) == []
  ledger.rewind(found=0)
  assert ledger.learner_steps == 6
  assert not ledger.is_state_pending
  states.request(context, is_final=False)
  assert calls.arrive(f"{late}/1/0", values[late]) == []
  assert ledger.is_state_pending
  values = {"server.get_state": training(16), "replay.snapshot": snapshot(90)}
  assert calls.arrive(f"{first}/2/0", values[first]) == []
  (event,) = calls.arrive(f"{late}/2/0", values[late])
  assert counters(event) == (90, 100)


def test_lost_part_drops_its_own_request_only(context):
  calls, ledger = context.calls, context.ledger
  states.request(context, is_final=False)
  calls.lose("server.get_state/1/0")
  assert not ledger.is_state_pending
  states.request(context, is_final=False)
  calls.lose("replay.snapshot/1/0")
  assert ledger.is_state_pending


@pytest.mark.slow
def test_last_state_has_the_final_evaluation():
  config = load_config(None, [*TINY, "max_wall_s=1e-9", "evaluation.final_episodes=2"])
  with in_process_ray.connected():
    events = list(driver.run(RunInputs(config, build.env_spec(config))))
  first, evaluated, best, last, finished = (e for e in events if not isinstance(e, Started | ActorReports))
  assert (first.is_final, last.is_final, finished.reason) == (True, False, "max_wall_s")
  assert best.best_bound == evaluated.result.lower_bound
  bounds = [event.state.progress["best/bound"] for event in (first, last)]
  assert bounds == [-math.inf, best.best_bound]
  assert first.state.wall_s < last.state.wall_s
