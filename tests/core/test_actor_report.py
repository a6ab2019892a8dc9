"""Tests of `Stretch` and `ActorReport`, compared with hand-computed values."""

import pytest

from moozi.core.actor_report import Span, Stretch, ends, idle_share, in_order, part_of, shares


def stretch(since_s, until_s, *spans):
  return Stretch(since_s=since_s, until_s=until_s, spans=tuple(Span(*span) for span in spans))


def test_shares():
  # In two stretches of 10 s each, updates take 2 + 1 + 4 s and publishing takes 1 s.
  track = [
    stretch(0, 10, ("update", 1, 3), ("publish", 3, 4), ("update", 9, 10)),
    stretch(15, 25, ("update", 15, 19)),
  ]
  assert shares(track) == pytest.approx({"update": 0.35, "publish": 0.05})
  assert list(shares(track)) == ["update", "publish"]
  assert idle_share(track) == pytest.approx(0.6)
  assert idle_share([stretch(0, 10)]) == 1.0
  assert idle_share([stretch(0, 10, ("update", 0, 10))]) == 0.0


def test_within_cuts_spans():
  whole = stretch(0, 10, ("a", 0, 2), ("b", 2, 5), ("c", 5, 5), ("d", 6, 9))
  assert whole.within(1, 7) == stretch(1, 7, ("a", 1, 2), ("b", 2, 5), ("c", 5, 5), ("d", 6, 7))
  assert whole.within(-5, 50) == whole
  assert whole.within(2, 5) == stretch(2, 5, ("b", 2, 5))
  assert whole.within(9, 20) == stretch(9, 10)
  for edges in ((10, 20), (-3, 0), (4, 4)):
    assert whole.within(*edges) is None


def test_part_of_drops_absent_actors():
  timeline = {"a": [stretch(3, 5), stretch(5, 9, ("x", 6, 7))], "b": [stretch(1, 4)]}
  assert ends(timeline) == (1, 9)
  assert part_of(timeline, 4, 6.5) == {"a": [stretch(4, 5), stretch(5, 6.5, ("x", 6, 6.5))]}
  assert part_of(timeline, 10, 11) == {}


def test_in_order():
  names = [
    *("parameter_server", "replay_buffer", "training_worker_0", "training_worker_2", "training_worker_10"),
    *("reanalyze_worker_0", "testing_worker", "others", "3_others", "others_4"),
  ]
  assert list(in_order({name: [] for name in sorted(names)})) == names
