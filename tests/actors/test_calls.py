"""Calls in flight, and those that nobody waits for any more."""

import pytest

from moozi.actors.calls import Calls
from tests.actors.in_process_ray import RAY, Reference


def test_calls_that_are_given_up_are_undone_and_the_others_come():
  calls, reacted, undone = Calls(RAY), [], []

  def expect(actor, value):
    def undo(error):
      assert error is None
      undone.append(actor)
      return [f"{actor} was waited for in vain"]

    calls.expect(Reference(value), actor, reacted.append, undo)

  for value, actor in enumerate(
    ("training_worker_0", "replay_buffer", "reanalyze_worker_1", "training_worker_11")
  ):
    expect(actor, value)
  told = list(calls.give_up(("training_worker", "reanalyze_worker")))
  assert undone == ["training_worker_0", "reanalyze_worker_1", "training_worker_11"]
  assert told == [f"{actor} was waited for in vain" for actor in undone]
  for call, value, error in calls.come(timeout_s=1.0):
    assert error is None
    call.react(value)
  assert reacted == [1]
  assert not calls


def test_what_is_asked_for_while_others_are_given_up_is_waited_for():
  calls, later = Calls(RAY), Reference(5)

  def undo(_):
    calls.expect(later, "training_worker_0")
    return []

  calls.expect(Reference(4), "training_worker_0", undo=undo)
  assert list(calls.give_up(("training_worker",))) == []
  assert [value for _, value, _ in calls.come(timeout_s=1.0)] == [5]


@pytest.mark.parametrize("error", [RAY.exceptions.ObjectLostError(), RAY.exceptions.ActorDiedError("ab")])
def test_what_is_lost_comes_with_its_error(error):
  calls = Calls(RAY)
  calls.expect(Reference(error=error), "replay_buffer")
  ((call, value, found),) = calls.come(timeout_s=1.0)
  assert (call.actor, value, found) == ("replay_buffer", None, error)


def test_one_call_can_be_waited_for_alone():
  calls, lost = Calls(RAY), RAY.exceptions.ObjectLostError()
  first, second, gone = Reference(1), Reference(2), Reference(error=lost)
  calls.expect(first, "replay_buffer", lambda value: [("came", value)])
  calls.expect(second, "replay_buffer", lambda value: [("came", value)])
  calls.expect(gone, "replay_buffer", undo=lambda error: [("lost", error)])
  assert calls.ready([second, gone], timeout_s=1.0) == [second, gone]
  assert calls.settle(second) == [("came", 2)]
  assert calls.settle(gone) == [("lost", lost)]
  assert [value for _, value, _ in calls.come(timeout_s=1.0)] == [1]
  assert not calls
