import pytest

from moozi.actors.calls import Calls
from moozi.core.errors import NotFiniteError
from tests.actors.in_process_ray import RAY, Reference


def test_cancelled_calls_count_as_lost():
  calls, results, lost = Calls(RAY), [], []

  def expect(actor, value):
    def on_failure(error):
      assert error is None
      lost.append(actor)
      return [f"{actor} was cancelled"]

    calls.expect(Reference(value), actor, results.append, on_failure)

  for value, actor in enumerate(
    ("training_worker_0", "replay_buffer", "reanalyze_worker_1", "training_worker_11")
  ):
    expect(actor, value)
  events = list(calls.cancel(("training_worker", "reanalyze_worker")))
  assert lost == ["training_worker_0", "reanalyze_worker_1", "training_worker_11"]
  assert events == [f"{actor} was cancelled" for actor in lost]
  for call, value, error in calls.completed(timeout_s=1.0):
    assert error is None
    call.on_result(value)
  assert results == [1]
  assert not calls


def test_call_made_while_cancelling_is_kept():
  calls, later = Calls(RAY), Reference(5)

  def on_failure(_):
    calls.expect(later, "training_worker_0")
    return []

  calls.expect(Reference(4), "training_worker_0", on_failure=on_failure)
  assert list(calls.cancel(("training_worker",))) == []
  assert [value for _, value, _ in calls.completed(timeout_s=1.0)] == [5]


@pytest.mark.parametrize("error", [RAY.exceptions.ObjectLostError(), RAY.exceptions.ActorDiedError("ab")])
def test_lost_result_is_yielded_with_its_error(error):
  calls = Calls(RAY)
  calls.expect(Reference(error=error), "replay_buffer")
  ((call, value, found),) = calls.completed(timeout_s=1.0)
  assert (call.actor, value, found) == ("replay_buffer", None, error)


def test_error_of_an_update_has_no_traceback():
  """Ray's error is of both classes, and has the traceback of the other process as text."""
  cause = NotFiniteError("value is not finite")
  wrapped = NotFiniteError("ray::ParameterServer.update()\n  Traceback …\nvalue is not finite")
  wrapped.cause = cause
  for error in (wrapped, cause):
    calls = Calls(RAY)
    calls.expect(Reference(error=error), "server")
    ((_, value, found),) = calls.completed(0.0)
    assert (value, found) == (None, cause)


def test_one_call_can_be_completed_alone():
  calls, lost = Calls(RAY), RAY.exceptions.ObjectLostError()
  first, second, gone = Reference(1), Reference(2), Reference(error=lost)
  calls.expect(first, "replay_buffer", lambda value: [("result", value)])
  calls.expect(second, "replay_buffer", lambda value: [("result", value)])
  calls.expect(gone, "replay_buffer", on_failure=lambda error: [("lost", error)])
  assert calls.ready([second, gone], timeout_s=1.0) == [second, gone]
  assert calls.complete(second) == [("result", 2)]
  assert calls.complete(gone) == [("lost", lost)]
  assert [value for _, value, _ in calls.completed(timeout_s=1.0)] == [1]
  assert not calls
