"""Tests of the driver with a fake `ray` module in one process."""

import dataclasses
import math

import pytest

from moozi.actors import driver
from moozi.actors.pool import ActorPool
from moozi.core.errors import RunError
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import (
  Acted,
  ActorReports,
  Collected,
  Evaluated,
  Faulted,
  Finished,
  Histograms,
  Reanalyzed,
  StateReady,
  Updated,
)
from moozi.run.session import RunInputs
from tests import run_events
from tests.actors import in_process_ray
from tests.tiny_run import TINY

pytestmark = pytest.mark.slow

WORK = {
  "parameter_server": {"update", "publish", "checkpoint", "histograms"},
  "replay_buffer": {
    *("add", "sample", "priorities", "positions", "write back", "checkpoint", "histograms"),
  },
  "training_worker_0": {"segment"},
  "reanalyze_worker_0": {"reanalyze"},
  "testing_worker": {"evaluation"},
}


WARM = ("acting", "the update")


@pytest.fixture(scope="module")
def events():
  config = load_config(
    None,
    [
      *(*TINY, "replay.sampling=rank", "reanalyze.ratio=0.3", "reanalyze.batch_size=16"),
      *("logging.period_s=1e-9", "logging.histogram_period_updates=10", "timeline.seconds=1e6"),
      *("logging.parameter_histograms=true", "evaluation.final_episodes=2"),
      # The run is long enough for acting to wait for learning and for the target network to be copied.
      *("max_env_steps=640", "learner.target_update_period=20"),
    ],
  )
  with in_process_ray.connected():
    return list(driver.run(RunInputs(config, build.env_spec(config))))


def test_run_ends_after_its_steps(events):
  assert isinstance(events[-1], Finished)
  assert events[-1].env_steps == 640
  assert any(isinstance(e, Reanalyzed) for e in events)


def final_state(events):
  """Returns a copy of the final state; the copy matters because a resumed run empties its replay blocks."""
  state = run_events.final_state(events)
  replay = dataclasses.replace(state.replay, blocks=dict(state.replay.blocks))
  return dataclasses.replace(state, replay=replay)


def test_run_without_time_left_makes_its_last_evaluation_only(events):
  state = final_state(events)
  config = load_config(
    None, [*TINY, "max_env_steps=100000", "max_wall_s=0.001", "evaluation.final_episodes=2"]
  )
  with in_process_ray.connected():
    again = list(driver.run(RunInputs(config, build.env_spec(config), state=state)))
  assert not any(isinstance(e, (Acted, Updated)) for e in again)
  assert [e.is_final for e in again if isinstance(e, Evaluated)] == [True]
  assert (again[-1].reason, again[-1].env_steps) == ("max_wall_s", 640)


def test_stop_in_the_last_evaluation(events):
  state = final_state(events)
  config = load_config(None, [*TINY, "max_env_steps=640", "evaluation.final_episodes=2"])
  stop, seen = [False], []
  with in_process_ray.connected():
    for e in driver.run(RunInputs(config, build.env_spec(config), lambda: stop[0], state=state)):
      seen.append(e)
      stop[0] = stop[0] or (isinstance(e, StateReady) and e.is_final)
  assert not any(isinstance(e, (Acted, Updated, Evaluated)) for e in seen)
  assert seen[-1].reason == "stopped"


def test_first_worker_acts_before_the_others_start():
  phases, ray = [], in_process_ray.Ray()
  config = load_config(None, [*TINY, "workers.num_workers=3", "workers.num_envs=2", "reanalyze.ratio=0.3"])
  inputs = RunInputs(config, build.env_spec(config), on_phase=phases.append)
  with in_process_ray.connected(ray):
    run = driver.run(inputs)
    next(run)
    first = [name for name, _ in ray.made]
    assert any(isinstance(e, Finished) for e in run)
  assert first == ["ParameterServer", "TrainingWorker", "ReplayActor"]
  others = [(name, *args[2:3]) for name, args in ray.made[len(first) :]]
  assert others == [
    *(("TrainingWorker", 1), ("TrainingWorker", 2), ("ReanalyzeWorker", 0), ("TestingWorker",))
  ]
  assert phases[:2] == ["starting Ray", "starting the actors"]
  assert set(phases[2:]) == {f"{verb} {what}" for verb in ("compiling", "compiled") for what in WARM}
  assert len(phases) == 2 + 2 * len(WARM)


def test_worker_lost_while_it_compiles_is_restarted_and_acts():
  ray = in_process_ray.Ray(failures={("TrainingWorker", "warm_up"): [1]})
  config = load_config(None, list(TINY))
  with in_process_ray.connected(ray):
    seen = list(driver.run(RunInputs(config, build.env_spec(config))))
  assert sum(e.counts.get("training_worker", 0) for e in seen if isinstance(e, Faulted)) == 1
  assert seen[-1].env_steps == config.max_env_steps


def test_replay_that_cannot_be_made_ends_the_run():
  class ConstructorFailed(in_process_ray.ActorDiedError):
    actor_init_failed = True

    def __str__(self):
      return "The actor died\nTraceback:\n  File …\nmoozi.core.errors.UserError: steps do not fit in memory\n"

  ray = in_process_ray.Ray(errors={("ReplayActor", "ready"): {1: ConstructorFailed()}})
  config = load_config(None, list(TINY))
  with (
    in_process_ray.connected(ray),
    pytest.raises(RunError, match=r"^an actor failed: \S*UserError: steps do not fit in memory$"),
  ):
    list(driver.run(RunInputs(config, build.env_spec(config))))


def test_lost_object_that_the_driver_needs_ends_the_run(monkeypatch):
  def request(context):
    raise in_process_ray.ObjectLostError("parameters are lost")

  monkeypatch.setattr(driver.segments, "request", request)
  config, seen = load_config(None, list(TINY)), []
  with in_process_ray.connected(), pytest.raises(RunError, match=r"^an actor failed: parameters are lost$"):
    seen.extend(driver.run(RunInputs(config, build.env_spec(config))))
  assert isinstance(seen[-1], StateReady)


def test_work_in_flight_is_reported(events):
  segments = [e.metrics["system/segments_in_flight"] for e in events if isinstance(e, Acted)]
  batches = [e.metrics["system/batches_in_flight"] for e in events if isinstance(e, Updated)]
  # Each actor has at most two calls in flight, including the one that has just returned.
  assert min(segments) >= 1
  assert max(segments) == 2
  assert min(batches) >= 1
  assert max(batches) == 2


def test_every_actor_reports_work_and_memory(events):
  found = {name: set() for name in WORK}
  last_s = dict.fromkeys(WORK, -math.inf)
  for event in events:
    for name, report in event.reports.items() if isinstance(event, ActorReports) else ():
      assert 0 <= report.busy_s <= report.elapsed_s
      assert report.memory_mib > 1
      if report.stretch is not None:
        assert report.stretch.since_s >= last_s[name]
        last_s[name] = report.stretch.until_s
        found[name] |= {span.name for span in report.stretch.spans}
  assert found == WORK


def test_timeline_begins_with_the_first_update(events):
  stretches = [r.stretch for e in events if isinstance(e, ActorReports) for r in e.reports.values()]
  first_update = next(i for i, e in enumerate(events) if isinstance(e, Updated))
  before = [
    r.stretch for e in events[:first_update] if isinstance(e, ActorReports) for r in e.reports.values()
  ]
  assert any(stretch is not None for stretch in stretches)
  assert not any(stretch is not None for stretch in before)


def test_histograms_arrive_once_a_period(events):
  found = [e for e in events if isinstance(e, Histograms)]
  assert len(found) == len(range(10, events[-1].learner_steps + 1, 10))
  for event in found:
    assert {"replay/delta", "replay/priority"} <= event.histograms.keys()
    params = [name for name in event.histograms if name.startswith("params/")]
    assert len(params) > 5
    assert all(event.histograms[name].counts.sum() > 0 for name in params)


@pytest.fixture
def pools(monkeypatch):
  """Returns a list to which each run adds its actor pool."""
  found = []
  monkeypatch.setattr(driver, "ActorPool", lambda *args: found.append(ActorPool(*args)) or found[-1])
  return found


def test_replay_lost_before_its_first_snapshot_is_searched_again(pools):
  ray = in_process_ray.Ray()
  config = load_config(
    None,
    [
      *(*TINY, "replay.sampling=rank", "reanalyze.ratio=0.6", "reanalyze.batch_size=16"),
      *("evaluation.final_episodes=2", "max_env_steps=640", "learner.target_update_period=20"),
    ],
  )
  events = []
  with in_process_ray.connected(ray):
    for event in driver.run(RunInputs(config, build.env_spec(config))):
      if isinstance(event, Reanalyzed) and not any(isinstance(e, Reanalyzed) for e in events):
        ray.kill(pools[0].shards[0])
      events.append(event)
  at = next(i for i, e in enumerate(events) if isinstance(e, Faulted) and "replay_buffer" in e.counts)
  assert "empty: there is no snapshot yet" in events[at].message
  for kind in (Acted, Updated, Reanalyzed):
    assert any(isinstance(e, kind) for e in events[at:]), kind
  assert isinstance(events[-1], Finished)
  assert events[-1].env_steps == 640


def test_replay_lost_with_all_steps_ends_the_run(pools):
  ray = in_process_ray.Ray()
  config = load_config(
    None, [*TINY, "evaluation.final_episodes=2", "max_env_steps=160", "learner.samples_per_step=64"]
  )
  events = []
  with in_process_ray.connected(ray):
    for event in driver.run(RunInputs(config, build.env_spec(config))):
      if event.env_steps == 160 and not (events and events[-1].env_steps == 160):
        ray.kill(pools[0].shards[0])
      events.append(event)
  assert any("replay_buffer" in e.counts for e in events if isinstance(e, Faulted))
  assert isinstance(events[-1], Finished)
  assert events[-1].env_steps == 160


@pytest.mark.parametrize("fails", [False, True])
def test_kept_segments_precede_the_state(fails):
  error = in_process_ray.RayError("the environment cannot continue")
  ray = in_process_ray.Ray(errors={("TrainingWorker", "run"): {4: error}} if fails else {})
  config = load_config(
    None, [*TINY, "trajectories.save=true", "checkpoint.period_s=1e-6", "evaluation.final_episodes=2"]
  )
  kept, num_states, found = 0, 0, None
  with in_process_ray.connected(ray):
    try:
      for event in driver.run(RunInputs(config, build.env_spec(config))):
        if isinstance(event, Collected):
          kept += event.segment.last_reward.size
        # The state of the best evaluation contains no replay.
        if isinstance(event, StateReady) and event.state.replay is not None:
          num_states += 1
          assert event.state.replay.head["counter/added"] == kept
    except in_process_ray.RayError as raised:
      found = raised
  assert (found is error) == fails
  # The fourth segment fails; the first three are stored.
  assert kept == (96 if fails else 320)
  assert num_states > (0 if fails else 3)
