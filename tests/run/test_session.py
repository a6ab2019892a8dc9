"""Tests of the session's loop with a trainer that only counts steps."""

import types

import numpy as np
import pytest

from moozi.core.actor_report import ActorReport
from moozi.core.errors import EnvError, NotFiniteError, UserError
from moozi.core.pytree import record
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import EvaluationResult
from moozi.io.config import load_config
from moozi.run.events import Acted, ActorReports, Evaluated, Faulted, Finished, Started, StateReady
from moozi.run.session import RunInputs, Session
from moozi.run.state import RunState

SPEC = EnvSpec(name="tiny:catch", frame_shape=(3, 3, 1), frame_dtype="bool", num_env_actions=2)
SCHEDULES = (
  "max_env_steps=100",
  "evaluation.period_env_steps=30",
  "evaluation.episodes=2",
  "evaluation.final_episodes=3",
  "checkpoint.milestones_env_steps=40",
  "checkpoint.period_s=1e9",
  "checkpoint.first_s=null",
)


@record
class Training:
  learner_step: np.ndarray


class Trainer:
  """A trainer whose `step` counts 10 environment steps and 1 update."""

  message, sample_reuse = "counting", 2.0

  def __init__(self, *overrides, outcomes=(), **inputs):
    self.config = load_config(None, [*SCHEDULES, *overrides])
    inputs = RunInputs(self.config, SPEC, **inputs)
    self.session = Session(inputs, self)
    self.env_steps, self.learner_steps = inputs.env_steps, inputs.learner_steps
    self.outcomes, self.num_episodes = list(outcomes), []

  @property
  def is_complete(self):
    return self.env_steps >= self.config.max_env_steps

  def step(self):
    self.env_steps += 10
    self.learner_steps += 1
    none = np.zeros(0)
    counters = self.session.counters()
    yield Acted(**counters, metrics={}, episode_returns=none, episode_lengths=none, staleness=0.0)

  def evaluate(self, num_episodes):
    self.num_episodes.append(num_episodes)
    outcome = self.outcomes.pop(0) if self.outcomes else 1.0
    if isinstance(outcome, Exception):
      raise outcome
    if outcome is None:
      return None
    returns = np.full(num_episodes, outcome)
    return EvaluationResult(
      returns, np.ones(num_episodes, np.int64), 1, self.learner_steps, self.env_steps, None
    )

  def training_state(self):
    return Training(learner_step=np.int32(self.learner_steps))

  def state(self, has_envs=True):
    collectors = ({"x": 1},) if has_envs else ()
    return RunState(
      training=self.training_state(), progress={"env_steps": self.env_steps}, collectors=collectors
    )

  def reports(self):
    return {}

  def run(self):
    return list(self.session.run(self))


def saved(events):
  return [e for e in events if isinstance(e, StateReady) and not e.is_best]


def test_schedules_and_order():
  trainer = Trainer()
  events = trainer.run()
  assert isinstance(events[0], Started)
  assert events[0].message == "counting"
  assert [(e.env_steps, e.is_final) for e in saved(events)] == [
    *((40, False), (80, False), (100, True)),
    (100, False),
  ]
  assert [e.env_steps for e in events if isinstance(e, Evaluated)] == [30, 60, 90, 100]
  assert trainer.num_episodes == [2, 2, 2, 3]
  assert [type(e) for e in events[-4:]] == [StateReady, Evaluated, StateReady, Finished]
  assert events[-1] == Finished(env_steps=100, learner_steps=10, reason="max_env_steps", sample_reuse=2.0)
  assert not any(isinstance(e, ActorReports) for e in events)


def test_reports_follow_each_step_and_the_final_evaluation():
  trainer = Trainer("max_env_steps=20")
  trainer.reports = lambda: {"worker": ActorReport(elapsed_s=1.0, busy_s=1.0)}
  kinds = [type(e) for e in trainer.run()]
  assert kinds == [
    Started,
    Acted,
    ActorReports,
    Acted,
    ActorReports,
    StateReady,
    Evaluated,
    StateReady,
    StateReady,
    ActorReports,
    Finished,
  ]


def test_stop_skips_the_final_evaluation():
  events = Trainer(should_stop=lambda: True).run()
  assert [type(e) for e in events] == [Started, StateReady, Finished]
  assert events[-1].reason == "stopped"
  assert saved(events)[0].is_final


def test_stop_during_a_checkpoint_ends_the_run_at_its_step():
  stopped = [False]
  trainer = Trainer("checkpoint.milestones_env_steps=20", should_stop=lambda: stopped[0])
  events = []
  for event in trainer.session.run(trainer):
    events.append(event)
    stopped[0] |= isinstance(event, StateReady)
  assert [(event.env_steps, event.is_final) for event in saved(events)] == [(20, False), (20, True)]
  assert events[-1].reason == "stopped"


def test_wall_time_ends_the_run_with_an_evaluation():
  events = Trainer("max_wall_s=1e-9").run()
  assert [type(e) for e in events[:3]] == [Started, StateReady, Evaluated]
  assert events[-1].reason == "max_wall_s"


@pytest.mark.parametrize(
  ("is_over", "steps"),
  [
    (lambda trainer: trainer.env_steps >= 30, [30]),
    # The time ends during the evaluation.
    (lambda trainer: bool(trainer.num_episodes), [30, 40]),
  ],
)
def test_wall_time_never_causes_two_evaluations_at_one_step(monkeypatch, is_over, steps):
  trainer = Trainer("max_wall_s=100")
  monkeypatch.setattr(trainer.session, "wall_s", lambda: 1000.0 * is_over(trainer))
  events = trainer.run()
  assert [e.env_steps for e in events if isinstance(e, Evaluated)] == steps
  assert events[-1].reason == "max_wall_s"


def test_wall_time_continues_in_a_resumed_run():
  last = saved(Trainer("max_env_steps=40").run())[-1].state
  state = RunState(training=last.training, progress=last.progress | {"wall_s": 50.0})
  session = Trainer(state=state).session
  assert 50.0 <= session.wall_s() < 100.0
  assert session.progress()["wall_s"] >= 50.0


def test_share_of_the_time():
  session = Trainer("max_wall_s=100").session
  for wall_s, share in ((0.0, 0.0), (25.0, 0.25), (100.0, 1.0), (130.0, 1.0)):
    session.wall_s = lambda wall_s=wall_s: wall_s
    assert session.time_share() == share
  session = Trainer().session
  session.wall_s = lambda: 1e6
  assert session.time_share() == 0.0


def test_resume_continues_schedules():
  whole = Trainer().run()
  again = Trainer(state=saved(whole)[0].state).run()
  assert again[0].env_steps == 40
  rest = whole[whole.index(saved(whole)[0]) + 1 :]
  assert [(type(e), e.env_steps, e.learner_steps) for e in again[1:]] == [
    (type(e), e.env_steps, e.learner_steps) for e in rest
  ]


def test_stopped_evaluation_is_repeated_on_resume():
  stopped = [False]
  trainer = Trainer(outcomes=[None], should_stop=lambda: stopped[0])
  events = []
  for event in trainer.session.run(trainer):
    events.append(event)
    stopped[0] = event.env_steps >= 30
  assert not any(isinstance(e, Evaluated) for e in events)
  again = Trainer(state=saved(events)[-1].state).run()
  assert isinstance(again[1], Evaluated)
  assert again[1].env_steps == 30


def test_stopped_final_evaluation_is_repeated_on_resume():
  events = Trainer(outcomes=[1.0, 1.0, 1.0, None]).run()
  assert (events[-1].reason, events[-1].env_steps) == ("stopped", 100)
  again = Trainer(state=saved(events)[-1].state).run()
  assert not any(isinstance(e, Acted) for e in again)
  assert [e.is_final for e in again if isinstance(e, Evaluated)] == [True]
  assert (again[-1].reason, again[-1].learner_steps) == ("max_env_steps", 10)


def test_last_state_has_the_final_evaluation():
  events = Trainer(outcomes=[1.0, 1.0, 1.0, 5.0]).run()
  before, after = (e.state.progress["best/bound"] for e in saved(events)[-2:])
  assert (before, after) == (1.0, 5.0)
  again = Trainer("max_env_steps=120", outcomes=[3.0, 4.0], state=saved(events)[-1].state).run()
  assert not any(isinstance(e, StateReady) and e.is_best for e in again)


@pytest.mark.parametrize("error", [EnvError("it fell"), UserError("a player cannot be created")])
def test_failed_evaluation_is_a_fault(error):
  events = Trainer(outcomes=[error]).run()
  (fault,) = [e for e in events if isinstance(e, Faulted)]
  assert fault.counts == {"env_errors": 1}
  assert fault.message == f"testing_worker: no evaluation: {error}"
  assert [e.env_steps for e in events if isinstance(e, Evaluated)] == [60, 90, 100]


def test_lost_environments_are_left_out():
  trainer = Trainer()
  event = trainer.session.state_ready(trainer, is_final=True, has_envs=False)
  assert event.is_final
  assert event.state.collectors == ()
  assert {"wall_s", "env_steps", "evaluations/next", "best/bound"} <= event.state.progress.keys()


def test_rollback_once():
  checkpoint = RunState(training=Training(learner_step=np.int32(4)))
  trainer, error = (
    Trainer(latest=lambda: checkpoint),
    NotFiniteError("loss is not finite", {"skipped_updates": 2}),
  )
  rollback = trainer.session.rollback.take(error, 9)
  assert (rollback.found, int(rollback.training.learner_step)) == (4, 9)
  fault = rollback.fault(trainer.session.counters(), 5)
  assert fault.counts == {"rollbacks": 1, "lost_updates": 5, "skipped_updates": 2}
  with pytest.raises(NotFiniteError) as raised:
    trainer.session.rollback.take(error, 9)
  assert raised.value is error


def test_rollback_without_a_checkpoint_raises():
  with pytest.raises(NotFiniteError):
    Trainer().session.rollback.take(NotFiniteError("loss is not finite"), 9)


def test_play_passes_the_run_to_the_evaluator():
  trainer, calls = Trainer(), []
  trainer.env_steps = 70
  evaluator = types.SimpleNamespace(run=lambda *args, **kwargs: calls.append((args, kwargs)))
  trainer.session.play(evaluator, ("variables", 7), 5)
  ((args, kwargs),) = calls
  assert args == ("variables",)
  assert (kwargs["num_episodes"], kwargs["version"], kwargs["env_steps"]) == (5, 7, 70)


def test_phase_is_reported_once():
  seen = []
  session = Trainer(on_phase=seen.append).session
  for text in ("compiling acting", "compiling the update", "compiling acting"):
    session.phase(text)
  assert seen == ["compiling acting", "compiling the update"]
