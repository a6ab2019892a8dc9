"""Tests of runs with several shards of replay, with a fake `ray` module in one process."""

import dataclasses
import math

import pytest

from moozi.actors import driver
from moozi.io.config import load_config
from moozi.replay.saved_state import check_snapshot
from moozi.replay.shard_snapshots import parts_of
from moozi.replay.snapshot import num_added
from moozi.run import build
from moozi.run.events import Acted, Faulted, Finished, Histograms, Reanalyzed, StateReady, Updated
from moozi.run.session import RunInputs
from tests.actors import in_process_ray
from tests.tiny_run import TINY

pytestmark = pytest.mark.slow

OPTIONS = (
  *(*TINY, "workers.num_workers=2", "workers.num_envs=2", "ray.replay_shards=2", "max_env_steps=100000"),
  *("replay.sampling=proportional", "reanalyze.ratio=0.3", "reanalyze.batch_size=16"),
  "replay.normalize_importance=true",
  *("checkpoint.period_s=1e9", "checkpoint.first_s=null", "checkpoint.milestones_env_steps=160"),
  *("evaluation.period_env_steps=1000000", "evaluation.final_episodes=2", "learner.samples_per_step=4"),
  *("logging.period_s=1e-9", "logging.histogram_period_updates=10"),
)
STEPS = 2 * 8  # of a segment


def run(until, ray=None, state=None, overrides=()):
  """Runs the driver for `until` environment steps; returns its events and the states that it saved."""
  config, events, saved = load_config(None, [*OPTIONS, *overrides]), [], []
  inputs = RunInputs(
    config,
    build.env_spec(config),
    should_stop=lambda: bool(events) and events[-1].env_steps >= until,
    state=state,
    latest=lambda with_replay=False: saved[-1] if saved else None,
  )
  with in_process_ray.connected(ray):
    for event in driver.run(inputs):
      events.append(event)
      if isinstance(event, StateReady) and event.state.replay is not None:
        saved.append(event.state)
  return events, saved


@pytest.fixture(scope="module")
def finished():
  return run(math.inf, overrides=["max_env_steps=320"])


def final(saved):
  """Returns a copy of the last state; a resumed run empties its blocks."""
  replay = saved[-1].replay
  return dataclasses.replace(saved[-1], replay=dataclasses.replace(replay, blocks=dict(replay.blocks)))


def test_a_run_learns_from_both_shards(finished):
  events, saved = finished
  assert isinstance(events[-1], Finished)
  assert events[-1].sample_reuse == pytest.approx(4, rel=0.1)
  kinds = {type(event) for event in events}
  assert kinds >= {Acted, Updated, Reanalyzed, Histograms}
  assert Faulted not in kinds
  updates = [event.metrics for event in events if isinstance(event, Updated)]
  assert updates[-1]["replay/added"] == updates[-1]["replay/steps"]
  assert 0 < updates[-1]["replay/fill"] < 1
  assert updates[-1]["replay/renewed"] > 0
  assert updates[-1]["replay/rewritten"] > 0
  # The maximum of a batch is that of the rows of both shards.
  assert all(update["importance_ratio/max"] == 1 for update in updates)
  (histograms, *_) = [event.histograms for event in events if isinstance(event, Histograms)]
  assert {"replay/delta", "replay/priority"} <= histograms.keys()
  state = saved[-1]
  check_snapshot(state.replay, build.env_spec(load_config(None, list(OPTIONS))))
  parts = parts_of(state.replay)
  assert sum(num_added(part) for part in parts) == state.env_steps
  # Each shard gave samples and positions, and got the results back.
  for name in ("added", "drawn", "renewed", "rewritten"):
    assert all(part.head[f"counter/{name}"] > 0 for part in parts), name
  assert sum(part.head["counter/stale"] for part in parts) == 0


def test_a_shard_that_fails_loses_its_own_steps_only():
  added = []

  class Ray(in_process_ray.Ray):
    def call(self, handle, name, args):
      value = super().call(handle, name, args)
      if name == "add":
        added.append(handle)
      return value

  ray = Ray({("ReplayActor", "add"): {17}})
  events, saved = run(480, ray)
  ((at, fault),) = [
    (i, event)
    for i, event in enumerate(events)
    if isinstance(event, Faulted) and event.counts.get("replay_buffer")
  ]
  (first,) = [event.state for event in events[:at] if isinstance(event, StateReady)]
  assert "from its last snapshot" in fault.message
  shard = int(fault.message.split("_")[2].split()[0])
  failed = next(handle for handle in added if handle._is_dead)
  num_stored = STEPS * added.count(failed)
  assert fault.counts["lost_steps"] == num_stored - num_added(parts_of(first.replay)[shard])
  assert fault.counts["lost_steps"] > 0
  resets = ray._counts["TrainingWorker", "reset"]
  assert resets == 1
  assert any(isinstance(event, Updated) for event in events[at:])
  lost = sum(event.counts.get("lost_steps", 0) for event in events if isinstance(event, Faulted))
  state = saved[-1]
  assert state.env_steps == num_added(state.replay) + lost
  # The shard receives steps again.
  assert num_added(parts_of(state.replay)[shard]) > num_added(parts_of(first.replay)[shard])


@pytest.mark.parametrize("num_shards", [1, 2])
def test_a_run_is_resumed_with_any_number_of_shards(finished, num_shards):
  before = final(finished[1])
  held = num_added(before.replay)
  events, saved = run(held + 96, state=before, overrides=[f"ray.replay_shards={num_shards}"])
  assert before.replay.blocks == {}
  assert not any(isinstance(event, Faulted) for event in events)
  assert any(isinstance(event, Updated) for event in events)
  after = saved[-1]
  assert len(parts_of(after.replay)) == num_shards
  assert after.env_steps == num_added(after.replay) >= held + 96
