"""Tests that lost steps and updates are counted exactly when actors fail or updates are not finite."""

import numpy as np
import pytest

from moozi.actors import driver
from moozi.core.errors import NotFiniteError, RunError
from moozi.envs.suites.tiny import BALL
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import Acted, Faulted, StateReady, Updated
from moozi.run.session import RunInputs
from moozi.run.state import RunState
from tests.actors import in_process_ray
from tests.run_events import assert_equal_trees
from tests.tiny_run import TINY

# Learning starts after 64 steps; then each segment of 32 steps allows four calls of two updates.
CONFIG = load_config(
  None,
  [
    *(
      *TINY,
      "checkpoint.period_s=1e9",
      "checkpoint.first_s=null",
      "checkpoint.milestones_env_steps=160",
      "max_env_steps=100000",
    ),
    *("logging.histogram_period_updates=null", "timeline.seconds=0"),
    *("evaluation.period_env_steps=1000000", "learner.samples_per_step=4"),
  ],
)
UPDATES = 2


class Run:
  """Runs the driver for `until` environment steps and keeps its events and saved states."""

  def __init__(self, ray, until=320, state=None, is_saving=True, publish_period=1):
    self.events, self.saved, self.error = [], [], None
    update = {"publish_period_updates": publish_period}
    config = CONFIG.model_copy(update={"ray": CONFIG.ray.model_copy(update=update)})
    with in_process_ray.connected(ray):
      events = driver.run(
        RunInputs(
          config,
          build.env_spec(config),
          should_stop=lambda: bool(self.events) and self.events[-1].env_steps >= until,
          state=state,
          latest=lambda with_replay=False: self.saved[-1] if self.saved else None,
        )
      )
      try:
        for event in events:
          self.events.append(event)
          if isinstance(event, StateReady) and is_saving:
            self.saved.append(event.state)
      except NotFiniteError as error:
        self.error = error

  def faults(self, kind):
    """Returns (earlier events, event) for each Faulted event with a count of this kind."""
    return [
      (self.events[:i], e) for i, e in enumerate(self.events) if isinstance(e, Faulted) and kind in e.counts
    ]

  def total(self, kind):
    return sum(fault.counts[kind] for _, fault in self.faults(kind))

  def final(self):
    (event,) = [event for event in self.events if isinstance(event, StateReady) and event.is_final]
    return event


def updates(events):
  return UPDATES * sum(isinstance(event, Updated) for event in events)


def assert_versions_never_decrease(events):
  steps = [event.learner_steps for event in events]
  assert steps == sorted(steps)
  acted = [event.learner_steps - event.staleness for event in events if isinstance(event, Acted)]
  assert acted == sorted(acted)
  assert acted[-1] > 0


def assert_samples_are_those_of_the_updates(run):
  samples = updates(run.events) * CONFIG.learner.batch_size
  assert run.final().state.progress["pacer/samples_done"] == samples


@pytest.fixture(scope="module")
def server_failed():
  """Returns a run whose parameter server fails twice without a checkpoint in between."""
  ray = in_process_ray.Ray({("ParameterServer", "update"): {15, 18}})
  run = Run(ray)
  run.servers = [args[2:] for name, args in ray.made if name == "ParameterServer"]
  return run


@pytest.mark.slow
def test_replay_that_fails_in_each_call_ends_the_run():
  """A restarted replay answers whether it can be sampled; this does not count as work."""
  fails_always = set(range(6, 1000))
  ray = in_process_ray.Ray({("ReplayActor", name): fails_always for name in ("add", "sample")})
  message = r"^replay_buffer failed more than ray\.max_restarts=3 times in a row: .*; see logs/replay_buffer"
  with pytest.raises(RunError, match=message):
    Run(ray)


@pytest.mark.slow
def test_server_restarts_with_the_checkpoint(server_failed):
  first, *again = server_failed.servers
  assert first == (None,)
  assert len(again) == 2
  saved = server_failed.saved[0].training
  for training, learner_step in again:
    assert_equal_trees((training.params, training.opt_state), (saved.params, saved.opt_state))
    assert learner_step > int(saved.learner_step)


@pytest.mark.slow
def test_lost_updates_are_counted_once(server_failed):
  (first, fault), (second, again) = server_failed.faults("parameter_server")
  (saved,) = [e for e in first if isinstance(e, StateReady)]
  assert not [e for e in second[len(first) :] if isinstance(e, StateReady)]
  found = saved.learner_steps
  assert 0 < found < updates(first)
  assert fault.counts["lost_updates"] == updates(first) - found
  assert again.counts["lost_updates"] == updates(second) - updates(first) > 0
  assert server_failed.total("lost_updates") == updates(second) - found
  for event in (fault, again):
    assert f"from learner step {found:,}" in event.message


@pytest.mark.slow
def test_versions_never_decrease(server_failed):
  assert_versions_never_decrease(server_failed.events)
  assert_samples_are_those_of_the_updates(server_failed)
  assert server_failed.final().env_steps == server_failed.final().state.replay.head["counter/added"]


@pytest.fixture(scope="module")
def trained(server_failed):
  return server_failed.final().state.training


@pytest.mark.slow
def test_server_restarts_with_the_runs_first_state(trained):
  ray = in_process_ray.Ray({("ParameterServer", "update"): {4}})
  run = Run(ray, state=RunState(training=trained), is_saving=False)
  ((before, fault),) = run.faults("parameter_server")
  assert fault.counts["lost_updates"] == updates(before) > 0
  assert ", the run's initial state, because there is no checkpoint yet" in fault.message
  (first,), (again, learner_step) = (args[2:] for name, args in ray.made if name == "ParameterServer")
  assert learner_step == fault.learner_steps > int(first.learner_step)
  assert_equal_trees(first.params, again.params)
  assert_versions_never_decrease(run.events)


@pytest.mark.slow
def test_server_restarts_with_its_first_parameters():
  run = Run(in_process_ray.Ray({("ParameterServer", "update"): {4}}), is_saving=False)
  ((before, fault),) = run.faults("parameter_server")
  assert fault.counts["lost_updates"] == updates(before) > 0
  assert "with the initial parameters" in fault.message
  assert_versions_never_decrease(run.events)


@pytest.mark.slow
def test_steps_lost_with_replay_are_counted_exactly():
  run = Run(in_process_ray.Ray({("ReplayActor", "add"): {7, 9}}))
  (_, fault), (_, again) = run.faults("replay_buffer")
  saved = run.saved[0].replay.head["counter/added"]
  # Six segments of 32 steps were stored before the seventh call failed.
  assert fault.counts["lost_steps"] == 6 * 32 - saved > 0
  assert again.counts["lost_steps"] == 32
  assert "from its last snapshot" in fault.message
  final = run.final()
  assert final.env_steps == final.state.replay.head["counter/added"] + run.total("lost_steps")
  assert_samples_are_those_of_the_updates(run)


@pytest.mark.slow
def test_actors_that_the_memory_monitor_has_killed_are_restarted():
  failures = {
    ("TrainingWorker", "run"): {5},
    ("ReplayActor", "add"): {7},
    ("ParameterServer", "update"): {15},
  }
  run = Run(in_process_ray.Ray(failures, is_memory_low=True))
  for kind in ("training_worker", "replay_buffer", "parameter_server"):
    ((_, fault),) = run.faults(kind)
    assert fault.counts[kind] == 1
  final = run.final()
  assert final.env_steps == final.state.replay.head["counter/added"] + run.total("lost_steps")
  assert_samples_are_those_of_the_updates(run)


@pytest.mark.slow
def test_no_episode_crosses_a_lost_segment():
  """The worker's third segment is lost, although the worker works."""

  class Ray(in_process_ray.Ray):
    def call(self, handle, name, args):
      value = super().call(handle, name, args)
      if name == "run" and self._counts["TrainingWorker", "run"] == 3:
        raise in_process_ray.RayActorError("unavailable")
      return value

  run = Run(Ray(), until=160)
  assert run.total("dropped_steps") == 32
  assert 0 < run.total("lost_steps") <= 32
  replay = build.build_replay(CONFIG, build.env_spec(CONFIG))
  replay.restore(run.final().state.replay)
  for lane in range(4):
    steps = replay.storage.trajectory(lane, 0, int(replay.storage.newest[lane]) + 1)
    row = steps.frame[..., BALL].any(axis=2).argmax(axis=1)  # the ball falls one row in each step
    assert (steps.is_first[1:] | (np.diff(row) == 1)).all()
  assert_samples_are_those_of_the_updates(run)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("call", "publish_period"),
  [
    pytest.param(15, 1, id="another update queued"),
    pytest.param(18, 34, id="older parameters pending"),
  ],
)
def test_second_rollback_ends_the_run(call, publish_period):
  errors = {call: NotFiniteError("value is not finite"), 45: NotFiniteError("reward is not finite")}
  held = []

  class Ray(in_process_ray.Ray):
    def call(self, handle, name, args):
      value = super().call(handle, name, args)
      if name == "roll_back":
        held.append(handle._actor.get_state())
      return value

  run = Run(Ray(errors={("ParameterServer", "update"): errors}), until=10_000, publish_period=publish_period)
  ((before, fault),) = run.faults("rollbacks")
  (saved,) = [e for e in before if isinstance(e, StateReady)]
  assert fault.counts == {"rollbacks": 1, "lost_updates": updates(before) - saved.learner_steps}
  assert (
    f"value is not finite; restored the parameters of learner step {saved.learner_steps:,}" in fault.message
  )
  (state,), was = held, saved.state.training
  assert_equal_trees((state.params, state.opt_state), (was.params, was.opt_state))
  assert int(state.learner_step) == fault.learner_steps
  # Results of calls that were queued before the rollback must not change the learner step.
  assert_versions_never_decrease(run.events)
  after = run.events[len(before) :]
  assert run.final() is run.events[-1]
  assert run.events[-2].learner_steps == fault.learner_steps + updates(after)
  acted = [event.learner_steps - event.staleness for event in after if isinstance(event, Acted)]
  assert len(acted) > CONFIG.ray.segments_in_flight
  assert min(acted[CONFIG.ray.segments_in_flight :]) >= fault.learner_steps
  i = next(i for i, event in enumerate(after) if isinstance(event, StateReady))
  assert after[i].learner_steps == after[i - 1].learner_steps
  assert str(run.error) == "reward is not finite"


@pytest.mark.slow
def test_driver_keeps_no_copy_of_the_resumed_replay(server_failed):
  ray, state = in_process_ray.Ray(), server_failed.final().state
  held = state.replay.head["counter/added"]
  assert state.replay.blocks
  run = Run(ray, until=held + 32, state=state)
  assert state.replay.blocks == {}
  assert run.final().state.replay.head["counter/added"] >= held + 32
  assert run.final().state.replay.blocks


@pytest.mark.slow
def test_no_rollback_without_a_checkpoint():
  errors = {4: NotFiniteError("value is not finite")}
  run = Run(in_process_ray.Ray(errors={("ParameterServer", "update"): errors}), is_saving=False)
  assert str(run.error) == "value is not finite"
  assert not run.faults("rollbacks")
