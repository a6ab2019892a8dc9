"""Segments that are kept: told in order, one at a time for each worker, and gaps are known."""

from moozi.actors.collecting import Collecting
from moozi.run.events import Collected


class Calls:
  """Calls in flight whose results come when the test says."""

  def __init__(self):
    self.waiting, self.lost, self.travelling = {}, set(), set()

  def expect(self, reference, actor, react, undo):
    self.waiting[reference] = (actor, react, undo)

  def come(self, reference):
    return self.waiting.pop(reference)[1](f"value of {reference}")

  def ready(self, references, timeout_s):
    assert timeout_s >= 0
    return [reference for reference in references if reference not in self.travelling]

  def forget(self, reference):
    del self.waiting[reference]

  def settle(self, reference):
    return self.lose(reference) if reference in self.lost else self.come(reference)

  def lose(self, reference):
    return self.waiting.pop(reference)[2]("lost")


def make() -> tuple[Calls, Collecting]:
  calls = Calls()
  return calls, Collecting(calls, lambda: {"env_steps": 7, "learner_steps": 3}, num_envs=4)


def told(events) -> tuple:
  (event,) = events
  assert isinstance(event, Collected)
  assert (event.env_steps, event.learner_steps) == (7, 3)
  return event.segment, event.first_lane, event.follows


def test_a_workers_segments_are_waited_for_one_after_the_other():
  calls, collecting = make()
  for reference in ("a", "b", "c"):
    collecting.add(2, "worker_2", reference, is_whole=True)
  collecting.add(0, "worker_0", "x", is_whole=True)
  # A later one that arrives first would be told first.
  assert list(calls.waiting) == ["a", "x"]
  assert calls.waiting["a"][0] == "a segment of worker_2"
  assert told(calls.come("a")) == ("value of a", 8, True)
  assert told(calls.come("x")) == ("value of x", 0, True)
  assert list(calls.waiting) == ["b"]
  assert told(calls.come("b")) == ("value of b", 8, True)
  assert told(calls.come("c")) == ("value of c", 8, True)
  assert not calls.waiting


def test_what_replay_did_not_take_whole_leaves_a_gap():
  calls, collecting = make()
  collecting.add(0, "worker_0", "a", is_whole=True)
  collecting.add(0, "worker_0", "b", is_whole=False)
  collecting.add(1, "worker_1", "x", is_whole=True)
  collecting.add(0, "worker_0", "c", is_whole=True)
  collecting.add(0, "worker_0", "d", is_whole=True)
  assert told(calls.come("a"))[2]
  assert told(calls.come("x"))[2]
  assert not told(calls.come("c"))[2]
  assert told(calls.come("d"))[2]


def test_a_segment_that_is_lost_on_the_way_leaves_a_gap():
  calls, collecting = make()
  for reference in ("a", "b", "c"):
    collecting.add(0, "worker_0", reference, is_whole=True)
  assert calls.lose("a") == []
  assert not told(calls.come("b"))[2]
  assert told(calls.come("c"))[2]
  collecting.add(0, "worker_0", "d", is_whole=True)
  assert calls.lose("d") == []
  assert not calls.waiting
  collecting.add(0, "worker_0", "e", is_whole=True)
  assert not told(calls.come("e"))[2]


def test_all_can_be_told_at_once():
  calls, collecting = make()
  assert list(collecting.tell_all(1.0)) == []
  for reference in ("a", "b", "c"):
    collecting.add(0, "worker_0", reference, is_whole=True)
  collecting.add(1, "worker_1", "x", is_whole=True)
  calls.lost.add("b")
  all_told = [told([event]) for event in collecting.tell_all(1.0)]
  assert sorted(all_told) == [
    ("value of a", 0, True),
    ("value of c", 0, False),
    ("value of x", 4, True),
  ]
  assert not calls.waiting


def test_what_still_travels_comes_later_or_is_given_up():
  calls, collecting = make()
  for reference in ("a", "b"):
    collecting.add(0, "worker_0", reference, is_whole=True)
  collecting.add(1, "worker_1", "x", is_whole=True)
  calls.travelling = {"b"}
  assert [told([event])[0] for event in collecting.tell_all(1.0)] == ["value of a", "value of x"]
  collecting.add(0, "worker_0", "c", is_whole=True)
  assert list(calls.waiting) == ["b"]
  collecting.give_up()
  assert not calls.waiting
  collecting.add(0, "worker_0", "d", is_whole=True)
  assert not told(calls.come("d"))[2], "b and c are missing before it"
