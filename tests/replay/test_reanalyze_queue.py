"""Tests of the queue of positions to reanalyze, and of the search roots that it returns."""

import numpy as np
import pytest

from moozi.core.config.reanalyze import ReanalyzeConfig
from moozi.core.pytree import fields_of, replace
from moozi.core.records import RootSpan, SearchRoots
from moozi.replay import reanalyze_queue
from tests.ops.oracles import oracle_history
from tests.replay.replay_lanes import assert_valid, fill, make_buffer, make_spec, random_lanes, segment_of


def buffer_with_versions(length=30, lanes=2, lane_capacity=40, **options):
  """Returns a buffer with segments of five steps, whose versions are 0, 1, 2 …, and its lanes."""
  spec = make_spec()
  steps = random_lanes(1, lanes, length, spec)
  buffer = make_buffer(spec, lanes=lanes, lane_capacity=lane_capacity, **options)
  for number, first in enumerate(range(0, length, 5)):
    segment = segment_of(steps, first, first + 5, spec)
    version = np.full((5, lanes), number, np.int32)
    buffer.add(replace(segment, searched_version=version, acted_version=version), 0)
  return buffer, steps


def is_terminal(step) -> bool:
  return step.is_last and not step.is_truncated


def places(buffer, slot) -> list[tuple[int, int]]:
  lane = slot // buffer.lane_capacity
  return list(zip(lane.tolist(), buffer.storage.sequence[slot].tolist(), strict=True))


def searchable(steps, first=0) -> list[tuple[int, int]]:
  return [
    (lane, i)
    for lane, row in enumerate(steps)
    for i, s in enumerate(row)
    if i >= first and not is_terminal(s)
  ]


@pytest.mark.parametrize("calls", [1, 3, 16])
def test_oldest_searches_first_and_each_once(calls, monkeypatch):
  monkeypatch.setattr(reanalyze_queue, "_POOL_CALLS", calls)
  buffer, steps = buffer_with_versions()
  due = searchable(steps)
  seen = []
  while len(seen) < len(due):
    now = places(buffer, buffer.reanalyze_queue.choose(min(7, len(due) - len(seen)), "oldest", 100))
    assert now == sorted(now)
    seen += now
    ages = [i // 5 for _, i in seen]
    assert max(ages) <= min([i // 5 for p in due if p not in seen for i in p[1:]], default=99)
  # All positions have been requested, so the next scan starts from the beginning.
  assert sorted(seen) == due
  again = places(buffer, buffer.reanalyze_queue.choose(len(due), "oldest", 101))
  assert sorted(again) == due


def test_overwritten_slots_can_be_requested_again():
  buffer, steps = buffer_with_versions(length=40, lane_capacity=20)
  kept = buffer.reanalyze_queue.choose(1000, "oldest", 100)
  # Of each lane's 40 steps 20 are stored, and the two oldest of these have an incomplete history.
  assert places(buffer, kept) == searchable(steps, first=22)
  more = random_lanes(2, 2, 45, make_spec(), 0.0)
  segment = segment_of(more, 40, 45, make_spec())
  version = np.full((5, 2), 7, np.int32)
  buffer.add(replace(segment, searched_version=version), 0)
  fresh = places(buffer, buffer.reanalyze_queue.choose(10, "oldest", 100))
  assert fresh == [(lane, i) for lane in (0, 1) for i in range(40, 45)]


def test_largest_priorities_first():
  buffer, _ = buffer_with_versions(sampling="proportional")
  delta, version = buffer.storage.delta, buffer.storage.arrays["searched_version"]
  everything, searched = buffer.reanalyze_queue._candidates()
  due = everything[searched < 4]
  chosen = buffer.reanalyze_queue.choose(9, "priority", 4)
  assert (version[chosen] < 4).all()
  assert np.sort(delta[chosen])[0] >= np.sort(delta[np.setdiff1d(due, chosen)])[-1]
  rest = buffer.reanalyze_queue.choose(len(due) - 9, "priority", 4)
  assert not np.intersect1d(chosen, rest).size
  # After the due positions, those with the oldest search are chosen.
  over = buffer.reanalyze_queue.choose(3, "priority", 4)
  assert (np.sort(np.concatenate([chosen, rest])) == np.sort(due)).all()
  assert set(over) <= set(everything)


def test_a_scan_serves_several_calls_with_changing_versions(monkeypatch):
  """An averaged target network has a new version at each update; a scan reads every stored step."""
  buffer, _ = buffer_with_versions(sampling="proportional")
  queue, scans = buffer.reanalyze_queue, []
  candidates = queue._candidates
  monkeypatch.setattr(queue, "_candidates", lambda: scans.append(None) or candidates())
  seen = np.concatenate([queue.choose(2, "priority", version) for version in range(100, 116)])
  assert len(scans) == 1
  assert len(set(seen.tolist())) == 32
  # The largest priorities are chosen first, whatever the version.
  order = buffer.storage.delta[seen].reshape(16, 2)
  assert (order[:-1].min(axis=1) >= order[1:].max(axis=1)).all()


def test_a_new_step_does_not_inherit_the_priority_of_its_slot():
  spec = make_spec()
  steps = random_lanes(1, 2, 40, spec, 0.0)
  buffer = make_buffer(spec, lane_capacity=20, sampling="proportional")
  buffer.add(segment_of(steps, 0, 20, spec), 0)
  first, stop = buffer.storage.eligible_range()
  old = buffer.storage.range_slots(np.arange(2), first, stop)
  buffer.update_priorities(old, buffer.storage.sequence[old], np.full(len(old), 1000.0))
  buffer.add(segment_of(steps, 20, 30, spec), 0)
  version = buffer.storage.arrays["searched_version"]
  version[:] = 0
  # In each lane, ten new steps have replaced the ten oldest, and the newest K + n = 5 are not eligible.
  _, stop = buffer.storage.eligible_range()
  assert stop.tolist() == [25, 25]
  waiting = buffer.storage.range_slots(np.arange(2), stop, np.full(2, 30))
  assert (buffer.storage.delta[waiting] == 0).all()
  due = places(buffer, buffer.reanalyze_queue.choose(1000, "priority", 4))
  assert len(due) == 2 * 18
  for count in (6, 16):
    other = make_buffer(spec, lane_capacity=20, sampling="proportional")
    other.restore(buffer.snapshot())
    other.reanalyze_queue._pool_for = (-1, -1)
    chosen = other.reanalyze_queue.choose(count, "priority", 4)
    assert not np.isin(chosen, waiting).any()
  assert_valid(buffer)


def test_overwritten_slots_leave_the_pool():
  spec = make_spec()
  steps = random_lanes(1, 2, 60, spec, 0.0)
  buffer = make_buffer(spec, lane_capacity=20)
  for first in range(0, 20, 5):
    buffer.add(segment_of(steps, first, first + 5, spec), 0)
  buffer.reanalyze_queue.choose(4, "oldest", 100)
  for first in range(20, 40, 5):
    buffer.add(segment_of(steps, first, first + 5, spec), 0)
  now = places(buffer, buffer.reanalyze_queue.choose(1000, "oldest", 101))
  assert now == [(lane, i) for lane in (0, 1) for i in range(22, 40)]


@pytest.mark.parametrize("order", ["oldest", "priority"])
def test_resumed_queue_chooses_the_same(order):
  buffer, _ = buffer_with_versions()
  buffer.reanalyze_queue.choose(5, order, 4)
  other = make_buffer(make_spec())
  other.restore(buffer.snapshot())
  # These positions would be chosen first if the restored queue started a new scan.
  for b in (buffer, other):
    b.storage.arrays["searched_version"][b.storage.sequence == 29] = 0
  for _ in range(3):
    slots = [b.reanalyze_queue.choose(5, order, 4) for b in (buffer, other)]
    np.testing.assert_array_equal(*slots)


def test_fewer_positions_than_requested():
  buffer, steps = buffer_with_versions(length=5)
  due = searchable(steps)
  assert len(buffer.reanalyze_queue.choose(3, "oldest", 9)) == 3
  now = places(buffer, buffer.reanalyze_queue.choose(100, "oldest", 9))
  assert len(now) == len(set(now)) == len(due)


@pytest.mark.parametrize("order", ["oldest", "priority"])
def test_positions_searched_with_newer_parameters_are_skipped(order):
  buffer, steps = buffer_with_versions()  # step i has version i // 5
  due = [(lane, i) for lane, i in searchable(steps) if i // 5 <= 2]
  seen = [p for _ in range(3) for p in places(buffer, buffer.reanalyze_queue.choose(1000, order, 2))]
  assert sorted(seen) == sorted(3 * due)  # a position of the same version may be searched again
  assert not len(buffer.reanalyze_queue.choose(7, order, -1))
  # Positions that wait in the pool, and were searched meanwhile, leave it.
  buffer.reanalyze_queue.choose(1, order, 3)
  searched = buffer.storage.arrays["searched_version"]
  searched[:] = 9
  assert not len(buffer.reanalyze_queue.choose(7, order, 3))


@pytest.mark.parametrize("order", ["oldest", "priority"])
def test_ties_of_age_are_broken_at_random(order, monkeypatch):
  monkeypatch.setattr(reanalyze_queue, "_POOL_CALLS", 1)
  buffer, _ = buffer_with_versions()
  buffer.storage.arrays["searched_version"][:] = 7  # as if all were acted with the target's parameters
  candidates, _ = buffer.reanalyze_queue._candidates()
  calls, size = 100, 6
  counts = np.zeros(buffer.storage.size, int)
  for _ in range(calls):
    slot = buffer.reanalyze_queue.choose(size, order, 7)
    assert len(set(slot.tolist())) == size
    counts[slot] += 1
  # Each is chosen `mean` times, with a standard deviation below its root.
  mean = calls * size / len(candidates)
  assert abs(counts[candidates] - mean).max() < 5 * mean**0.5
  # Older searches still come first.
  older = candidates[::9]
  buffer.storage.arrays["searched_version"][older] = 3
  buffer.reanalyze_queue._requested_sequence[:] = -1
  assert set(buffer.reanalyze_queue.choose(len(older), order, 7)) == set(older)


def test_a_result_older_than_the_stored_search_is_dropped():
  buffer, _ = buffer_with_versions()
  storage, random = buffer.storage, np.random.default_rng(0)
  version = storage.arrays["searched_version"]
  slot, _ = buffer.reanalyze_queue._candidates()
  # The oracle keeps, for each position, the result of the newest parameters; of equal ones, the last.
  newest = {int(s): (int(version[s]), float(storage.arrays["root_value"][s])) for s in slot}
  num_dropped = 0
  for _ in range(30):
    some = random.permutation(slot)[:9]
    values = random.normal(size=9).astype(np.float32)
    versions = random.integers(0, 9, 9).astype(np.int32)
    probs = np.full((9, buffer.spec.num_actions), 1 / buffer.spec.num_actions, np.float32)
    applied = buffer.write_back(some, storage.sequence[some], values, probs, versions)
    is_newer = [v >= newest[int(s)][0] for s, v in zip(some, versions, strict=True)]
    newest |= {
      int(s): (int(v), float(x)) for s, v, x, new in zip(some, versions, values, is_newer, strict=True) if new
    }
    assert applied == sum(is_newer)
    num_dropped += 9 - sum(is_newer)
  assert num_dropped > 50
  assert {s: (int(version[s]), float(storage.arrays["root_value"][s])) for s in newest} == newest
  assert buffer.stats()["replay/stale"] == num_dropped
  assert_valid(buffer)


def test_the_order_of_ties_is_restored(monkeypatch):
  monkeypatch.setattr(reanalyze_queue, "_POOL_CALLS", 1)
  chosen = []
  for at in (None, 3):
    buffer, _ = buffer_with_versions()
    buffer.storage.arrays["searched_version"][:] = 7
    chosen.append([])
    for call in range(6):
      if call == at:
        saved, (buffer, _) = buffer.snapshot(), buffer_with_versions()
        buffer.restore(saved)
      chosen[-1].append(buffer.reanalyze_queue.choose(5, "oldest", 7).tolist())
  assert chosen[0] == chosen[1]
  assert len({str(x) for x in chosen[0]}) == 6


def test_an_unknown_order_is_refused():
  with pytest.raises(ValueError, match="order='newest'"):
    buffer_with_versions()[0].reanalyze_queue.choose(1, "newest", 0)


@pytest.mark.parametrize("frame_dtype", ["bool", "uint8", "float32"])
@pytest.mark.parametrize("history_length", [1, 3])
def test_gathered_histories_equal_the_oracle(frame_dtype, history_length):
  spec = make_spec(frame_dtype)
  lanes = random_lanes(5, 3, 50, spec, 0.2)
  buffer = make_buffer(spec, lanes=3, lane_capacity=30, history_length=history_length)
  fill(buffer, lanes, spec, [*range(5, 50, 5), 50])
  roots = buffer.positions(ReanalyzeConfig(batch_size=1000), 5)
  assert isinstance(roots, SearchRoots)
  whole = segment_of(lanes, 0, 50, spec)
  assert len(roots.slot) > 50
  for row, (lane, i) in enumerate(places(buffer, roots.slot)):
    frames, actions = oracle_history(lanes[lane], i, history_length)
    for j in range(history_length):
      k = frames[j]
      expected = np.zeros(spec.frame_shape, frame_dtype) if k is None else lanes[lane][k].frame
      np.testing.assert_array_equal(roots.frames[row, j], expected, strict=True)
      k = actions[j]
      assert roots.history_actions[row, j] == (0 if k is None else lanes[lane][k].action)
    for name in ("legal_actions_mask", "root_value", "action_probs", "searched_version"):
      np.testing.assert_array_equal(getattr(roots, name)[row], getattr(whole, name)[i, lane], strict=True)
    assert roots.sequence[row] == i


def test_spans_hold_positions_and_their_histories():
  buffer, steps = buffer_with_versions(length=60, lane_capacity=40, history_length=3)
  slot = buffer.reanalyze_queue.choose(17, "oldest", 9)
  spans = buffer.reanalyze_queue.spans(slot)
  assert all(isinstance(span, RootSpan) for span in spans)
  found = []
  whole = segment_of(steps, 0, 60, make_spec())
  for span in spans:
    lane = int(span.slot[0]) // buffer.lane_capacity
    first = int(span.sequence[0] - span.at[0])
    assert span.at[0] == min(3, span.sequence[0])
    assert len(span.steps.action) == span.at[-1] + 1
    for name, value in fields_of(span.steps).items():
      if name not in ("searched_version", "acted_version"):
        expected = getattr(whole, name)[first : first + len(value), lane]
        np.testing.assert_array_equal(value, expected, err_msg=name)
    found += [(lane, first + int(t)) for t in span.at]
  assert found == places(buffer, slot)
  assert (np.concatenate([span.slot for span in spans]) == slot).all()
  # Several positions share a span if their histories overlap.
  assert len(spans) < 17 / 2


def test_an_empty_buffer_has_no_positions():
  buffer = make_buffer()
  assert buffer.positions(ReanalyzeConfig(mode="replayed"), 0) == []
  assert len(buffer.positions(ReanalyzeConfig(), 0).slot) == 0
