"""Tests that the costs of a run's parts are measured, each in its own process."""

import multiprocessing
import threading

import pytest

from moozi.actors import passing
from moozi.actors.remote import process
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, WORKER
from moozi.core.config import ActorResources
from moozi.core.errors import UserError
from moozi.io.config import load_config
from moozi.run import build
from moozi.training import calibration
from moozi.training.calibration import _Measurement, _Part, _serve
from tests.tiny_run import TINY

CONFIG = load_config(None, [*TINY, "runtime=local"])


class Fragile(_Measurement):
  """A part that can make one call."""

  count = 0

  def call(self):
    self.count += 1
    if self.count > 4:
      raise ValueError("no more\ncalls")


@pytest.fixture
def part(monkeypatch):
  """Returns a part that is served by a thread; it ends with the test."""
  monkeypatch.setitem(calibration._PARTS, WORKER, Fragile)
  monkeypatch.setattr(process, "prepare", lambda setup: None)
  ours, theirs = multiprocessing.Pipe()
  arguments = theirs, WORKER, CONFIG, None, ActorResources()
  thread = threading.Thread(target=_serve, args=arguments, daemon=True)
  thread.start()
  yield _Part(WORKER, ours)
  ours.close()
  thread.join(10)
  assert not thread.is_alive()


def test_the_mean_of_some_calls_is_returned(part):
  seconds, cpu_s = part.ask("measure", 0.0)
  assert seconds >= 0
  assert cpu_s >= 0
  assert part.ask("memory") > 1


def test_an_error_is_one_line_and_the_part_answers_again(part):
  part.ask("measure", 0.0)
  with pytest.raises(UserError, match="training_worker: ValueError: no more calls"):
    part.ask("measure", 0.0)
  assert part.ask("memory") > 1


def test_a_process_that_ended_is_an_error():
  ours, theirs = multiprocessing.Pipe()
  part = _Part(SERVER, ours)
  part.send("measure", 0.0)
  theirs.close()
  with pytest.raises(UserError, match="parameter_server: its process ended"):
    part.receive()


@pytest.mark.parametrize(
  ("overrides", "text"),
  [
    (["algorithm=examples.algorithm:make"], "a plan needs muzero, alphazero, ppo or q_learning"),
    (["acting.mode=server"], "acting.mode=server: must be worker for a plan"),
    (["learner.num_hosts=2"], "learner.num_hosts=2: must be 1 for a plan, which does not"),
    (["offline.trajectories=runs/old", "offline.fraction=0.5"], "offline.trajectories: must be null"),
  ],
)
def test_runs_that_cannot_be_measured(overrides, text):
  config = load_config(None, [*TINY, *overrides])
  with pytest.raises(UserError, match=text):
    calibration.calibrate(config, None, 1.0)


@pytest.mark.slow
def test_parts_of_a_run_with_reanalyze():
  config = load_config(None, [*TINY, "runtime=local", "reanalyze.ratio=0.5", "reanalyze.batch_size=8"])
  spec, phases = build.env_spec(config), []
  costs = calibration.calibrate(config, spec, 0.5, phases.append)
  for cost in (costs.act, costs.learn, costs.add, costs.draw, costs.reanalyze):
    assert cost.seconds > 0
    assert cost.cpu_s > 0
  assert costs.pass_segment.seconds == costs.pass_batch.seconds == 0
  # Frames of 50 bytes of bool, floats and ints, in 4 lanes of 8 steps.
  assert costs.segment_bytes > 32 * 50
  assert costs.batch_bytes > 2 * 16 * 50
  assert costs.parameter_bytes > 0
  assert set(costs.memory_mib) == {WORKER, SERVER, REPLAY, REANALYZE_WORKER, "driver"}
  assert 4 in costs.act_by_width
  assert 0 < costs.env_share < 1
  assert len(phases) == len(set(phases)) >= 4


@pytest.mark.slow
@pytest.mark.parametrize(
  "overrides",
  [
    ("algorithm=ppo", "ppo.network.kind=mlp", "ppo.num_envs=4", "ppo.segment_length=8", "runtime=ray"),
    ("algorithm=q_learning", "q_learning.kind=table"),
    ("runtime=ray",),
  ],
)
def test_parts_of_other_algorithms(overrides, monkeypatch):
  """What goes to Ray is what workers, replay and the learner exchange."""
  passed = []

  def measure(config, segment, targets, priorities, seconds, pauses_s):
    assert all(0 < pause_s <= 0.05 for pause_s in pauses_s)
    passed.append((segment, targets))
    return passing.Passing(passing.PassCost(1.0, 2.0), passing.PassCost(3.0, 4.0), 0.1)

  monkeypatch.setattr(passing, "measure_passing", measure)
  config = load_config(None, [*TINY, *overrides])
  costs = calibration.calibrate(config, build.env_spec(config), 0.5)
  assert costs.act.seconds > 0
  assert costs.learn.seconds > 0
  assert costs.pass_batch.seconds == (0 if config.has_one_process else 3)
  assert costs.idle_cores == (0 if config.has_one_process else 0.1)
  assert (costs.act.crowded_s > 0) == (config.algorithm == "muzero")
  assert len(passed) == (not config.has_one_process)
  for segment, targets in passed:
    assert (targets is None) == config.is_on_policy
    assert segment is not None
