"""Tests of MuZero in one process: events, determinism, and resuming."""

import copy
from dataclasses import replace

import jax
import numpy as np
import pytest

from moozi.core.errors import NotFiniteError, SegmentError
from moozi.io.config import load_config
from moozi.learning.learner import Learner
from moozi.replay.buffer import ReplayBuffer
from moozi.run import build, local, session
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
from tests.run.conftest import SCHEDULES, local_run, start
from tests.run_events import Clock, assert_equal_trees, first_checkpoint
from tests.tiny_run import TINY

SHORT = ("max_env_steps=96", "evaluation.final_episodes=1")


def states(events):
  return [e.state for e in events if isinstance(e, StateReady) and not e.is_best]


def summary(events):
  """Returns the events as tuples, without times and memory use."""
  out = []
  for e in events:
    row = (type(e).__name__, e.env_steps, e.learner_steps)
    if isinstance(e, Acted):
      row += (e.episode_returns.tolist(), e.episode_lengths.tolist(), sorted(e.metrics))
    if isinstance(e, Updated):
      names = ("loss/total", "replay/renewed", "replay/added")
      row += (*(e.metrics[name] for name in names), e.sample_reuse)
    if isinstance(e, Evaluated):
      row += (e.result.returns.tolist(),)
    out.append(row)
  return out


def test_event_order(events):
  assert isinstance(events[0], Started)
  assert isinstance(events[-1], Finished)
  assert (events[-1].reason, events[-1].env_steps) == ("max_env_steps", 320)
  counters = [(e.env_steps, e.learner_steps) for e in events if not getattr(e, "is_best", False)]
  assert counters == sorted(counters)
  final = [e.is_final for e in events if isinstance(e, StateReady) and not e.is_best]
  assert final == [False, True, False]
  evaluations = [e for e in events if isinstance(e, Evaluated)]
  assert [(e.is_final, len(e.result.returns)) for e in evaluations] == [(False, 4), (False, 4), (True, 5)]


def test_sample_reuse(events):
  finished = events[-1]
  num_samples = sum(e.num_samples for e in events if isinstance(e, Updated))
  assert num_samples == finished.learner_steps * 16
  assert finished.sample_reuse == pytest.approx(4.0, rel=0.05)


def test_acting_uses_the_newest_parameters(events):
  for event in events:
    if isinstance(event, Acted):
      assert event.staleness == 0
      assert np.isfinite(list(event.metrics.values())).all()


@pytest.mark.slow
def test_seed_determines_the_run(events):
  """The run samples by priority, so the test also covers replay's ranks and priorities."""
  again, other = local_run(), local_run(*SHORT, "max_env_steps=64", "seed=1")
  assert_equal_trees(states(events)[-1].training, states(again)[-1].training)
  assert summary(again) == summary(events)
  first = [[e.episode_returns.tolist() for e in x if isinstance(e, Acted)][:2] for x in (events, other)]
  assert first[0] != first[1]


@pytest.mark.slow
def test_priorities_are_refreshed(events):
  def renewed(events):
    return [e.metrics["replay/renewed"] for e in events if isinstance(e, Updated)][-1]

  assert renewed(events) > 0
  assert renewed(local_run(*SHORT, "replay.refresh_priorities=false")) == 0


@pytest.mark.slow
def test_start_from_a_training_state(events):
  training = states(events)[-1].training
  again = local_run(*SHORT, state=RunState(training=training))
  assert again[0].env_steps == 0
  assert again[0].learner_steps == int(training.learner_step) > 0
  assert next(e for e in again if isinstance(e, Acted)).staleness == 0
  assert again[-1].learner_steps > int(training.learner_step)


def test_rate_ends_with_the_time_and_follows_a_longer_limit_after_a_resume(monkeypatch):
  peak, end, limit_s, call_s = 0.01, 0.001, 100, 10
  rate = {"kind": "linear", "peak": peak, "end": end, "decay_steps": "progress"}
  settings = [f"learner.learning_rate.{key}={value}" for key, value in rate.items()]
  settings += ["evaluation.period_env_steps=10000", "evaluation.final_episodes=1"]
  num_updates = load_config(None, [*TINY, *SCHEDULES, *settings]).num_updates
  clock = Clock()
  monkeypatch.setattr(session, "time", clock)

  def rates(events):
    """Returns the rate of each call of the learner; a call takes ten seconds."""
    out, kept = [], []
    for event in events:
      if isinstance(event, Updated):
        out.append(event.metrics["update/learning_rate"])
        clock.now += call_s
      kept.append(event)
    return out, kept

  def expected(calls, limit_s):
    """Returns the mean rates of the two updates of each call."""
    shares = [
      [max(2 * n + i, call_s * n * num_updates / limit_s) / num_updates for i in (0, 1)] for n in calls
    ]
    return [np.mean([peak + (end - peak) * min(share, 1.0) for share in pair]) for pair in shares]

  found, events = rates(start(*settings, f"max_wall_s={limit_s}"))
  # The run ends after the round in which the time ends; each round has four calls.
  assert (events[-1].reason, len(found)) == ("max_wall_s", 12)
  np.testing.assert_allclose(found, expected(range(12), limit_s), rtol=1e-5)
  assert found[-1] == pytest.approx(end)

  state = states(events)[0]
  assert state.wall_s == 120
  clock.now += 1e6
  again, events = rates(start(*settings, "max_wall_s=200", state=state))
  assert events[-1].reason == "max_wall_s"
  np.testing.assert_allclose(again, expected(range(12, 20), 200), rtol=1e-5)
  assert found[-1] < again[0]


@pytest.mark.slow
def test_divergence_ends_the_run():
  error_text = r"^(loss|update)/\w+ is not finite: 20 updates in a row were skipped"
  with pytest.raises(NotFiniteError, match=error_text):
    local_run("learner.learning_rate.peak=1e30", "learner.optimizer=adam", "max_env_steps=100000")


@pytest.mark.slow
def test_rollback_once(monkeypatch):
  saved = states(local_run(*SHORT, "learner.optimizer=adam"))[0]
  events, restored = [], []
  set_state = Learner.set_state

  def record(self, state):
    set_state(self, state)
    restored.append(self.get_state())

  monkeypatch.setattr(Learner, "set_state", record)
  diverging = ("learner.learning_rate.peak=1e30", "learner.optimizer=adam", "max_env_steps=100000")
  with pytest.raises(NotFiniteError):
    events.extend(start(*diverging, latest=lambda: saved))
  (fault,) = [e for e in events if isinstance(e, Faulted)]
  assert fault.counts["rollbacks"] == 1
  assert fault.counts["lost_updates"] == fault.learner_steps - saved.learner_steps
  assert f"learner step {saved.learner_steps}" in fault.message
  (state,) = restored
  assert_equal_trees((state.params, state.opt_state), (saved.training.params, saved.training.opt_state))
  assert int(state.learner_step) == fault.learner_steps
  steps = [e.learner_steps for e in events]
  assert steps == sorted(steps)
  assert any(isinstance(e, Updated) for e in events[events.index(fault) :])
  assert isinstance(events[-1], StateReady)
  assert events[-1].is_final
  assert all(np.isfinite(x).all() for x in jax.tree_util.tree_leaves(events[-1].state.training.params))


def test_refused_segments_leave_a_last_state(monkeypatch):
  events, add = [], ReplayBuffer.add_or_refuse

  def refuse(self, *arguments):
    if any(isinstance(e, Acted) for e in events):
      raise SegmentError("too many refused segments")
    return add(self, *arguments)

  monkeypatch.setattr(ReplayBuffer, "add_or_refuse", refuse)
  with pytest.raises(SegmentError):
    events.extend(start())
  last = events[-1]
  assert isinstance(last, StateReady)
  assert last.is_final
  assert last.state.collectors == ()
  assert last.env_steps == sum(isinstance(e, Acted) for e in events) * 32


def test_replay_is_in_memory_once(events):
  state = copy.deepcopy(states(events)[0])
  assert state.replay.blocks
  config = load_config(None, [*TINY, *SCHEDULES])
  next(local.run(RunInputs(config, build.env_spec(config), state=state)))
  assert not state.replay.blocks


def test_reports_come_once_per_round_and_at_the_end(events):
  reports = [i for i, e in enumerate(events) if isinstance(e, ActorReports)]
  acted = [i for i, e in enumerate(events) if isinstance(e, Acted)]
  assert len(reports) == len(acted) + 1
  assert all(a < r for a, r in zip(acted, reports, strict=False))
  assert isinstance(events[reports[-1] + 1], Finished)
  names = ["parameter_server", "replay_buffer", "training_worker_0", "testing_worker"]
  assert all(list(events[i].reports) == names for i in reports)


@pytest.mark.slow
def test_segments_to_keep(events):
  assert not any(isinstance(e, Collected) for e in events)
  options = ("trajectories.save=true", "workers.num_workers=2", "replay.min_steps_to_learn=1000")
  kept = local_run(*SHORT, *options, "max_env_steps=128")
  segments = [e for e in kept if isinstance(e, Collected)]
  assert [e.first_lane for e in segments] == [0, 4, 0, 4]
  assert [e.env_steps for e in segments] == [32, 64, 96, 128]
  assert all(e.segment.action.shape == (8, 4) for e in segments)


DROP = ("planners.train.algorithm=puct", "planners.train.temperature_drop=2")
ALPHAZERO = ("algorithm=alphazero", "targets.unroll_steps=0", "targets.n_step=9")


@pytest.mark.slow
@pytest.mark.parametrize(
  "options",
  [
    ("env.name=tiny:catch",),
    ("env.name=minatar:breakout", "targets.discount_schedule=[{env_steps: 224, discount: 0.9}]"),
    ("env.name=gymnasium:CartPole-v1", "network.normalize_observations=true"),
    ("env.name=gymnax:CartPole-v1",),
    ("env.name=tiny:corridor", "workers.num_holding_envs=2", "workers.holding_env_steps=224"),
    ("env.name=open_spiel:tic_tac_toe", "workers.max_random_starts=3", *ALPHAZERO),
    ("env.name=pgx:tic_tac_toe", *ALPHAZERO, *DROP),
    ("env.name=tiny:point", "planners.train.num_sampled_actions=6"),
    ("env.name=tests.envs.lock:make_lock", "planners.train.num_sampled_actions=6", *ALPHAZERO),
  ],
)
def test_resume_to_the_bit(options, request):
  """A run that is resumed at a checkpoint has the same further events and final state as the original."""
  whole = request.getfixturevalue("events") if options == ("env.name=tiny:catch",) else local_run(*options)
  at = first_checkpoint(whole)
  assert 0 < whole[at].env_steps < whole[-1].env_steps
  again = local_run(*options, state=whole[at].state)
  assert isinstance(again[0], Started)
  assert again[0].message == "one process; replay holds 160 steps"
  assert summary(again[1:]) == summary(whole[at + 1 :])
  ends = [states(x)[-1] for x in (whole, again)]
  assert_equal_trees(ends[0].training, ends[1].training)
  for name, value in ends[0].collectors[0].items():
    np.testing.assert_array_equal(value, ends[1].collectors[0][name], err_msg=name)


@pytest.mark.slow
def test_resume_with_other_workers(events):
  again = local_run("workers.num_workers=2", "workers.num_envs=3", state=states(events)[0])
  assert "all environments are reset" in again[0].message
  assert "replay holds" in again[0].message
  assert again[-1].env_steps >= events[-1].env_steps
  end = states(again)[-1]
  assert end.progress["envs_began_at"] == 160
  # The second resume restores the environments that the first one created.
  third = local_run("workers.num_workers=2", "workers.num_envs=3", "max_env_steps=400", state=end)
  assert "reset" not in third[0].message


@pytest.mark.slow
def test_environments_that_replay_cannot_continue_are_reset_at_once():
  """As after a resume with other settings of replay, which then lacks the start of long episodes."""
  long = ("env.name=tiny:corridor", "env.kwargs.length=60", "max_env_steps=320")
  state = replace(states(local_run(*long))[0], replay=None)
  again = local_run(*long, state=state)
  (fault,) = [e for e in again if isinstance(e, Faulted)]
  assert fault.env_steps == state.env_steps + 32
  assert any(isinstance(e, Updated) for e in again)


def test_best_evaluation_saves_its_state(events):
  last = max(i for i, e in enumerate(events) if isinstance(e, StateReady) and e.is_best)
  before = [e.result.returns.mean() for e in events[:last] if isinstance(e, Evaluated)]
  assert before[-1] == max(before)
