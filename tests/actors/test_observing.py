"""Tests of actor reports and histograms: the driver waits for none but the last reports of a run."""

import pytest

from moozi.actors.observing import Observing
from moozi.core.actor_report import REPLAY, SERVER, TESTING_WORKER, ActorId, ActorReport, Span, Stretch
from moozi.core.histogram import histogram_of
from moozi.io.config import load_config
from moozi.run.events import ActorReports, Histograms
from moozi.run.work_log import TimelineWindow
from tests.actors.fakes import actor, make_context
from tests.actors.in_process_ray import RAY, RayActorError

REPORT = ActorReport(
  elapsed_s=10,
  busy_s=4,
  memory_mib=5.0,
  stretch=Stretch(since_s=0, until_s=10, spans=(Span("update", 1, 5),)),
)


class Ray:
  """A fake `ray` module; the test supplies the results of its calls."""

  exceptions = RAY.exceptions

  def __init__(self):
    self.answers, self.waits = {}, []

  def wait(self, references, num_returns, timeout):
    self.waits.append(timeout)
    ready = [r for r in references if r in self.answers]
    return ready[:num_returns], [r for r in references if r not in ready]

  def get(self, reference):
    answer = self.answers.pop(reference)
    if isinstance(answer, Exception):
      raise answer
    return answer


class Clock:
  now_s = 0.0

  def __call__(self):
    return self.now_s


@pytest.fixture
def made():
  actors = {name: actor(name, "report", "histograms") for name in (SERVER, REPLAY, TESTING_WORKER)}
  ray, clock = Ray(), Clock()
  config = load_config(None, ["logging.period_s=1e-9", "logging.histogram_period_updates=100"])
  context = make_context(config, actors, ray)
  context.ledger.learner_steps = 250
  observing = Observing(context)
  observing._window = TimelineWindow(20, clock)
  return observing, ray, actors, clock


def update(observing, learner_steps):
  observing._context.ledger.learner_steps = learner_steps
  observing._follow_updates()


def test_actor_with_a_pending_report_gets_no_request(made):
  observing, ray, actors, _ = made
  assert list(observing.poll()) == []
  ray.answers["replay_buffer.report/1/0"] = REPORT
  (event,) = observing.poll()
  assert isinstance(event, ActorReports)
  assert event.reports.keys() == {"replay_buffer"}
  assert [len(actor.report.asked) for actor in actors.values()] == [1, 2, 1]
  assert set(ray.waits) == {0.0}


def test_failed_actor_reports_nothing_and_its_successor_reports(made):
  observing, ray, _, _ = made
  list(observing.poll())
  ray.answers["testing_worker.report/1/0"] = RayActorError("died")
  another = actor("another", "report")
  observing._context.pool.handles[ActorId(TESTING_WORKER)] = another
  assert list(observing.poll()) == []
  assert len(another.report.asked) == 1


def test_actors_own_error_is_raised(made):
  observing, ray, _, _ = made
  list(observing.poll())
  ray.answers["testing_worker.report/1/0"] = ValueError("a programming error")
  with pytest.raises(ValueError, match="programming error"):
    list(observing.poll())


def test_between_two_periods_nothing_is_requested(made):
  observing, ray, _, _ = made
  observing._period_s = 1e6
  list(observing.poll())
  ray.answers["replay_buffer.report/1/0"] = REPORT
  assert list(observing.poll()) == []
  assert not ray.waits


def test_spans_are_requested_until_the_window_is_over(made):
  observing, ray, actors, clock = made
  list(observing.poll())
  clock.now_s = 4.0
  update(observing, 251)
  ray.answers["parameter_server.report/1/0"] = REPORT
  (event,) = observing.poll()
  expected = Stretch(since_s=4, until_s=10, spans=(Span("update", 4, 5),))
  assert event.reports["parameter_server"].stretch == expected
  clock.now_s = 24.0
  ray.answers["parameter_server.report/2/0"] = REPORT
  list(observing.poll())
  assert actors[SERVER].report.asked == [(True,), (True,), (False,)]


def test_histograms_are_requested_once_a_period(made):
  observing, ray, actors, _ = made
  histogram = histogram_of([1.0, 2.0])
  update(observing, 299)
  assert not actors[REPLAY].histograms.asked
  update(observing, 304)
  update(observing, 312)
  assert actors[REPLAY].histograms.asked == actors[SERVER].histograms.asked == [()]
  ray.answers["replay_buffer.histograms/1/0"] = {"replay/delta": histogram}
  ray.answers["parameter_server.histograms/1/0"] = RayActorError("died")
  (event,) = observing.poll()
  assert isinstance(event, Histograms)
  assert event.histograms == {"replay/delta": histogram}


def test_last_reports_are_waited_for(made):
  observing, ray, _, _ = made
  ray.answers["testing_worker.report/1/0"] = REPORT
  (event,) = observing.finish()
  assert event.reports.keys() == {"testing_worker"}
  assert ray.waits == [5.0]
