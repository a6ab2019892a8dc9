"""The whole algorithm in one process: what it yields, in which order, and twice the same."""

import jax
import numpy as np
import pytest

from moozi.core.errors import NotFiniteError
from moozi.io.config import load_config
from moozi.learning.learner import Learner
from moozi.run import build, local
from moozi.run.events import (
  Acted,
  ActorReports,
  Collected,
  Evaluated,
  Faulted,
  Finished,
  Started,
  StateReady,
  Updated,
)
from moozi.run.session import RunInputs
from moozi.run.state import RunState
from tests.tiny_run import TINY


def run(overrides=(), **kwargs):
  config = load_config(None, [*TINY, *overrides])
  return config, list(local.run(RunInputs(config, build.env_spec(config), **kwargs)))


@pytest.fixture(scope="module")
def events():
  # By steps alone: on a busy machine a checkpoint by the clock could come in between.
  return run(
    ["evaluation.period_env_steps=200", "checkpoint.milestones_env_steps=100", "checkpoint.period_s=1e6"]
  )[1]


def test_what_happens_is_told_in_order(events):
  assert isinstance(events[0], Started)
  assert isinstance(events[-1], Finished)
  assert events[-1].reason == "max_env_steps"
  assert events[-1].env_steps == 320
  counters = [(e.env_steps, e.learner_steps) for e in events]
  assert counters == sorted(counters)
  states = [e for e in events if isinstance(e, StateReady) and not e.is_best]
  assert [s.is_final for s in states] == [False, False, False, True]
  evaluations = [e for e in events if isinstance(e, Evaluated)]
  assert [(e.is_final, len(e.result.returns)) for e in evaluations] == [(False, 4), (True, 5)]


def test_sample_reuse_is_held(events):
  finished = events[-1]
  num_samples = sum(e.num_samples for e in events if isinstance(e, Updated))
  assert num_samples == finished.learner_steps * 16
  assert finished.sample_reuse == pytest.approx(4.0, rel=0.05)


def test_every_step_is_acted_with_known_parameters(events):
  for event in events:
    if isinstance(event, Acted):
      assert event.staleness == 0
      assert np.isfinite(list(event.metrics.values())).all()


def test_the_same_seed_gives_the_same_run_to_the_bit():
  """Prioritized sampling and refreshed priorities are on: every part takes part."""
  _, first = run(["replay.sampling=rank", "evaluation.final_episodes=2"])
  _, second = run(["replay.sampling=rank", "evaluation.final_episodes=2"])
  _, other = run(["replay.sampling=rank", "evaluation.final_episodes=2", "seed=1"])
  states = [
    next(e.state.training for e in events if isinstance(e, StateReady) and e.is_final)
    for events in (first, second)
  ]
  leaves = [jax.tree_util.tree_leaves(state) for state in states]
  for a, b in zip(*leaves, strict=True):
    np.testing.assert_array_equal(a, b)
  returns = [
    [e.episode_returns.tolist() for e in events if isinstance(e, Acted)] for events in (first, second, other)
  ]
  assert returns[0] == returns[1]
  assert returns[0] != returns[2]


def test_priorities_are_refreshed_after_updates():
  _, events = run(["replay.sampling=rank", "evaluation.final_episodes=1"])
  renewed = [e.metrics["replay/renewed"] for e in events if isinstance(e, Updated)]
  assert renewed[-1] > 0
  _, events = run(["replay.sampling=rank", "replay.refresh_priorities=false", "evaluation.final_episodes=1"])
  assert [e.metrics["replay/renewed"] for e in events if isinstance(e, Updated)][-1] == 0


def test_a_run_can_start_from_a_training_state(events):
  state = next(e.state.training for e in events if isinstance(e, StateReady) and e.is_final)
  config = load_config(None, [*TINY, "max_env_steps=96"])
  again = list(local.run(RunInputs(config, build.env_spec(config), state=RunState(training=state))))
  assert again[0].env_steps == 0
  assert again[0].learner_steps == int(state.learner_step) > 0
  assert next(e for e in again if isinstance(e, Acted)).staleness == 0
  assert again[-1].learner_steps > int(state.learner_step)


def test_a_stop_ends_with_a_checkpoint():
  _, events = run(should_stop=lambda: True)
  assert [type(e) for e in events] == [Started, StateReady, Finished]
  assert events[-1].reason == "stopped"


def test_wall_time_ends_the_run():
  _, events = run(["max_wall_s=0.001", "max_env_steps=1000000"])
  assert events[-1].reason == "max_wall_s"
  assert any(isinstance(e, Evaluated) and e.is_final for e in events)


@pytest.mark.slow
def test_a_run_that_has_gone_to_infinity_ends_with_the_terms_name():
  with pytest.raises(
    NotFiniteError, match=r"^(loss|update)/\w+ is not finite: 20 updates in a row were skipped"
  ):
    run(["learner.learning_rate.peak=1e30", "learner.optimizer=adam", "max_env_steps=100000"])


@pytest.mark.slow
def test_it_goes_back_to_the_last_checkpoint_once(monkeypatch):
  _, events = run(["learner.optimizer=adam", "max_env_steps=96", "evaluation.final_episodes=1"])
  good = next(e.state for e in events if isinstance(e, StateReady) and not e.is_best)
  config = load_config(
    None, [*TINY, "learner.learning_rate.peak=1e30", "learner.optimizer=adam", "max_env_steps=100000"]
  )
  told, held = [], []
  set_state = Learner.set_state

  def set_and_tell(self, state):
    set_state(self, state)
    held.append(self.get_state())

  monkeypatch.setattr(Learner, "set_state", set_and_tell)
  running = local.run(RunInputs(config, build.env_spec(config), latest=lambda: good))
  with pytest.raises(NotFiniteError):
    told.extend(running)
  (fault,) = [e for e in told if isinstance(e, Faulted)]
  assert fault.counts["rollbacks"] == 1
  assert fault.counts["lost_updates"] == fault.learner_steps - int(good.training.learner_step)
  assert f"learner step {int(good.training.learner_step)}" in fault.message
  (state,), was = held, good.training
  jax.tree_util.tree_map(
    np.testing.assert_array_equal, (state.params, state.opt_state), (was.params, was.opt_state)
  )
  assert int(state.learner_step) == fault.learner_steps
  steps = [e.learner_steps for e in told]
  assert steps == sorted(steps), "versions never go back"
  assert any(isinstance(e, Updated) for e in told[told.index(fault) :]), "the run went on"


def test_work_is_told_once_a_round_and_at_the_end(events):
  """At fixed places, so that a run and the same run resumed tell the same."""
  worked = [i for i, e in enumerate(events) if isinstance(e, ActorReports)]
  acted = [i for i, e in enumerate(events) if isinstance(e, Acted)]
  assert len(worked) == len(acted) + 1
  assert all(a < w for a, w in zip(acted, worked, strict=False))
  assert isinstance(events[worked[-1] + 1], Finished)
  names = ["parameter_server", "replay_buffer", "training_worker_0", "testing_worker"]
  assert all(list(events[i].reports) == names for i in worked)


def test_segments_are_told_where_they_are_kept(events):
  assert not any(isinstance(e, Collected) for e in events)
  _, told = run(
    ["trajectories.save=true", "workers.num_workers=2", "max_env_steps=128", "evaluation.final_episodes=1"]
  )
  segments = [e for e in told if isinstance(e, Collected)]
  assert [e.first_lane for e in segments] == [0, 4, 0, 4]
  assert [e.env_steps for e in segments] == [32, 64, 96, 128]
  assert all(e.segment.action.shape == (8, 4) for e in segments)
