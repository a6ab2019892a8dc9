import pytest

from moozi.actors.calls import Calls
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, WORKER, ActorId
from moozi.core.errors import NotFiniteError, ProcessLostError
from tests.actors.in_process_ray import RAY, Ray, Reference


def test_cancelled_calls_count_as_lost():
  calls, results, lost = Calls(RAY), [], []

  def expect(actor, value):
    def on_failure(error):
      assert error is None
      lost.append(actor)
      return [f"{actor} was cancelled"]

    calls.expect(Reference(value), actor, results.append, on_failure)

  actors = [ActorId(WORKER, 0), ActorId(REPLAY), ActorId(REANALYZE_WORKER, 1), None, ActorId(WORKER, 11)]
  for value, actor in enumerate(actors):
    expect(actor, value)
  events = list(calls.cancel(WORKER, REANALYZE_WORKER))
  assert lost == [actors[0], actors[2], actors[4]]
  assert events == [f"{actor} was cancelled" for actor in lost]
  for call, value, error in calls.completed(timeout_s=1.0):
    assert error is None
    call.on_result(value)
  assert results == [1, 3]
  assert not calls


def test_call_made_while_cancelling_is_kept():
  calls, later = Calls(RAY), Reference(5)

  def on_failure(_):
    calls.expect(later, ActorId(WORKER, 0))
    return []

  calls.expect(Reference(4), ActorId(WORKER, 0), on_failure=on_failure)
  assert list(calls.cancel(WORKER)) == []
  assert [value for _, value, _ in calls.completed(timeout_s=1.0)] == [5]


@pytest.mark.parametrize("error", [RAY.exceptions.ObjectLostError(), RAY.exceptions.ActorDiedError("ab")])
def test_lost_result_is_yielded_with_its_error(error):
  calls = Calls(RAY)
  calls.expect(Reference(error=error), ActorId(REPLAY))
  ((call, value, found),) = calls.completed(timeout_s=1.0)
  assert (call.actor, value, found) == (ActorId(REPLAY), None, error)


def test_error_of_an_update_has_no_traceback():
  """Ray's error is of both classes, and has the traceback of the other process as text."""
  cause = NotFiniteError("value is not finite")
  wrapped = NotFiniteError("ray::ParameterServer.update()\n  Traceback …\nvalue is not finite")
  wrapped.cause = cause
  for error in (wrapped, cause):
    calls = Calls(RAY)
    calls.expect(Reference(error=error), ActorId(SERVER))
    ((_, value, found),) = calls.completed(0.0)
    assert (value, found) == (None, cause)


class CountingRay(Ray):
  """A fake cluster that counts requests of results, and can lose its control store."""

  def __init__(self, is_lost=False):
    super().__init__()
    self.asked, self._is_lost = [], is_lost

  def get(self, references, timeout=None):
    self.asked.append(references)
    if self._is_lost:
      self._is_lost = False  # WatchedRay raises this error once
      raise ProcessLostError("the control store ended")
    return super().get(references, timeout)


def test_results_are_requested_together():
  ray = CountingRay()
  calls, references = Calls(ray), [Reference(value) for value in range(3)]
  for reference in references:
    calls.expect(reference, ActorId(REPLAY))
  calls._ray.wait = lambda references, num_returns, timeout: (references, [])
  assert [value for _, value, _ in calls.completed(1.0)] == [0, 1, 2]
  assert ray.asked == [references]


def test_a_lost_result_among_others_takes_none_with_it():
  ray, error = CountingRay(), RAY.exceptions.ObjectLostError()
  calls = Calls(ray)
  for reference in (Reference(0), Reference(error=error), Reference(2)):
    calls.expect(reference, ActorId(REPLAY))
  calls._ray.wait = lambda references, num_returns, timeout: (references, [])
  assert [(value, found) for _, value, found in calls.completed(1.0)] == [(0, None), (None, error), (2, None)]


def test_the_end_of_rays_processes_is_not_an_error_of_a_call():
  calls = Calls(CountingRay(is_lost=True))
  calls.expect(Reference(0), ActorId(REPLAY))
  with pytest.raises(ProcessLostError):
    list(calls.completed(1.0))
