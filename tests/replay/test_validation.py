"""Tests of replay's validation of segments, and of the gaps that refused segments leave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.core.config import TargetsConfig
from moozi.core.errors import SegmentError
from moozi.core.pytree import fields_of, map_fields, replace
from moozi.replay.validation import check_segment, split_at_gaps
from tests.replay.replay_lanes import (
  assert_is_oracle,
  assert_valid,
  make_buffer,
  make_spec,
  random_lanes,
  segment_of,
  stored_range,
)

SPEC = make_spec()
TARGETS = TargetsConfig(history_length=2, unroll_steps=2, n_step=3, discount=0.9)
LENGTH = 5


def good_segment(spec=SPEC):
  return segment_of(random_lanes(0, 2, LENGTH, spec, end_probability=0.0), 0, LENGTH, spec)


def with_value(name, value, where=(2, 1), spec=SPEC):
  array = np.array(getattr(good_segment(spec), name))
  array[where] = value
  return replace(good_segment(spec), **{name: array})


@pytest.mark.parametrize("name", list(fields_of(good_segment())))
def test_wrong_dtypes_are_named(name):
  value = getattr(good_segment(), name)
  for dtype in ("float64", "int64", "uint8", "object"):
    with pytest.raises(ValueError, match=rf"^{name} is of {dtype}: must be"):
      check_segment(replace(good_segment(), **{name: value.astype(dtype)}), SPEC)


@pytest.mark.parametrize("name", list(fields_of(good_segment())))
def test_wrong_shapes_are_refused(name):
  value = getattr(good_segment(), name)
  for other in (value[:, :1], value[..., None], value[:-1]):
    with pytest.raises(ValueError, match=r" shape |lanes"):
      check_segment(replace(good_segment(), **{name: other}), SPEC, num_lanes=2)


@pytest.mark.parametrize(
  ("name", "value", "message"),
  [
    ("last_reward", np.nan, "last_reward is not finite"),
    ("root_value", -np.inf, "root_value is not finite"),
    ("action_probs", np.nan, "action_probs is not finite"),
    ("action_probs", [0.5, 0.25, 0.3], "action_probs do not sum to 1"),
    ("action_probs", [-0.5, 1.0, 0.5], "action_probs has negative entries"),
    ("action", 3, "action outside 0 … 2"),
    ("action", -1, "action outside 0 … 2"),
    ("legal_actions_mask", False, "legal_actions_mask allows no action"),
    ("to_play", 1, "to_play outside 0 … 0"),
  ],
)
def test_impossible_numbers_are_refused(name, value, message):
  with pytest.raises(ValueError, match=message):
    check_segment(with_value(name, value), SPEC)


def test_float_frames_must_be_finite_and_rounding_is_allowed():
  spec = make_spec("float32")
  with pytest.raises(ValueError, match="frame is not finite"):
    check_segment(with_value("frame", np.nan, (2, 1, 0, 0, 0), spec), spec)
  check_segment(with_value("action_probs", [0.0, 0.5, 0.5003], spec=spec), spec)


def test_a_refused_segment_changes_no_stored_step():
  buffer = make_buffer(SPEC, lanes=4)
  lanes = random_lanes(0, 2, 20, SPEC)
  buffer.add_or_refuse(segment_of(lanes, 0, 10, SPEC), 2, 2, 20)
  before = map_fields(np.copy, buffer.storage.trajectory(2, 0, 10))
  added = buffer.add_or_refuse(replace(segment_of(lanes, 10, 15, SPEC), action=None), 2, 2, 10)
  assert added.faults == {"refused_segments": 1, "lost_steps": 10}
  assert added.describe(1) == (
    "training_worker_1: a segment of 10 steps is refused: action has shape (): must be (5, 2)"
  )
  map_fields(np.testing.assert_array_equal, before, buffer.storage.trajectory(2, 0, 10))
  assert (stored_range(buffer, 2), buffer.num_added) == ((0, 10), 20)
  stats = buffer.stats()
  assert (stats["replay/refused_segments"], stats["replay/lost_steps"]) == (1, 10)
  assert_valid(buffer)


def test_each_segment_is_checked_once(monkeypatch):
  checked = []
  monkeypatch.setattr(
    "moozi.replay.buffer.check_segment", lambda segment, *_, **__: checked.append(segment.action.shape)
  )
  lanes, buffer = random_lanes(0, 2, 3 * LENGTH, SPEC), make_buffer(SPEC)
  buffer.add_or_refuse(segment_of(lanes, 0, LENGTH, SPEC), 0, 2, 2 * LENGTH)
  buffer.add(segment_of(lanes, LENGTH, 2 * LENGTH, SPEC), 0)
  buffer._awaits_first[:] = True
  buffer.add_or_refuse(segment_of(lanes, 2 * LENGTH, 3 * LENGTH, SPEC), 0, 2, 2 * LENGTH)
  assert checked == [(LENGTH, 2)] * 3


def test_missing_lanes_raise():
  with pytest.raises(ValueError, match="first_lane=1 with 2 lanes"):
    make_buffer(SPEC).add_or_refuse(good_segment(), 1, 2, 10)


def test_a_wrong_number_of_lanes_is_refused():
  buffer = make_buffer(SPEC, lanes=4)
  assert "segment of 2 lanes: its worker has 1" in buffer.add_or_refuse(good_segment(), 0, 1, 5).refused
  assert buffer.add_or_refuse(good_segment(), 0, 2, 10).refused is None


def joined_lane(steps, lost_from, lost_to):
  """Returns the expected steps of a lane, and their indices, if lost_from … lost_to-1 were refused."""
  kept = list(range(lost_from))
  resumed = next((t for t in range(lost_to, len(steps)) if steps[t].is_first), None)
  if resumed is not None:
    if lost_from and not steps[lost_from - 1].is_last:
      steps[lost_from - 1].is_last = steps[lost_from - 1].is_truncated = True
      steps[lost_from - 1].action = 0
    kept += range(resumed, len(steps))
  return [steps[t] for t in kept], kept


@settings(max_examples=12)
@given(
  seed=st.integers(0, 2**32 - 1),
  refused=st.integers(0, 6),
  num_refused=st.integers(1, 2),
  end_probability=st.sampled_from([0.02, 0.15, 0.5]),
)
def test_no_target_crosses_a_gap(seed, refused, num_refused, end_probability):
  """Each lane holds its old steps, truncated, and the new ones from an episode's first; every step counts."""
  lanes = random_lanes(seed, 2, 8 * LENGTH, SPEC, end_probability)
  buffer = make_buffer(SPEC, lane_capacity=100, seed=seed, **TARGETS.model_dump())
  num_lost = 0
  for i in range(8):
    segment = segment_of(lanes, i * LENGTH, (i + 1) * LENGTH, SPEC)
    if refused <= i < refused + num_refused:
      segment = replace(segment, last_reward=np.full_like(segment.last_reward, np.nan))
    num_lost += buffer.add_or_refuse(segment, 0, 2, 2 * LENGTH).num_lost
    assert_valid(buffer)
  lost = refused * LENGTH, (refused + num_refused) * LENGTH
  joined, kept = zip(*(joined_lane(lane, *lost) for lane in lanes), strict=True)
  assert [stored_range(buffer, lane) for lane in range(2)] == [(0, len(steps)) for steps in joined]
  assert buffer.num_added + num_lost == 16 * LENGTH
  assert buffer.stats()["replay/lost_steps"] == num_lost
  if buffer.num_eligible:
    batch = buffer.sample(60)
    # The versions are the original step and lane; the oracle counts stored steps.
    lane = np.ravel(batch.slot) // buffer.lane_capacity
    original = [kept[b][i] for b, i in zip(lane, batch.sequence, strict=True)]
    np.testing.assert_array_equal(batch.acted_version, original)
    assert_is_oracle(buffer, replace(batch, acted_version=batch.sequence), list(joined), TARGETS)


def test_each_lane_waits_for_its_own_episode():
  lanes = random_lanes(3, 2, 30, SPEC, end_probability=0.0)
  for lane, end in zip(lanes, (11, 17), strict=True):
    lane[end].is_last, lane[end].is_truncated, lane[end].action = True, True, 0
    lane[end + 1].is_first = True
  buffer = make_buffer(SPEC)
  taken = []
  for i in range(6):
    segment = segment_of(lanes, i * LENGTH, (i + 1) * LENGTH, SPEC)
    taken.append(
      buffer.add_or_refuse(segment if i != 1 else map_fields(lambda x: x[:, :1], segment), 0, 2, 10).num_lost
    )
  assert taken == [0, 10, 2 + 5, 3, 0, 0]
  assert [stored_range(buffer, lane)[1] for lane in range(2)] == [5 + 18, 5 + 12]
  assert buffer.storage.trajectory(0, 4, 5).is_truncated[0]
  assert buffer.storage.trajectory(0, 5, 6).is_first[0]


def test_a_gap_is_part_of_the_state():
  lanes = random_lanes(3, 2, 15, SPEC, end_probability=0.0)
  buffer, other = make_buffer(SPEC), make_buffer(SPEC)
  buffer.add_or_refuse(segment_of(lanes, 0, 5, SPEC), 0, 2, 10)
  buffer.add_or_refuse(replace(segment_of(lanes, 5, 10, SPEC), action=None), 0, 2, 10)
  other.restore(buffer.snapshot())
  assert other.add_or_refuse(segment_of(lanes, 10, 15, SPEC), 0, 2, 10).num_lost == 10
  assert other.stats()["replay/lost_steps"] == 20
  # Restoring a state without a gap must not create one.
  sound, again = make_buffer(SPEC), make_buffer(SPEC)
  sound.add_or_refuse(segment_of(lanes, 0, 5, SPEC), 0, 2, 10)
  again.restore(sound.snapshot())
  assert again.add_or_refuse(segment_of(lanes, 5, 10, SPEC), 0, 2, 10).num_lost == 0


def test_an_empty_lane_waits_for_an_episode():
  lanes = random_lanes(3, 2, 5, SPEC, end_probability=0.0)
  lanes[1][0].is_first = False
  buffer = make_buffer(SPEC)
  assert buffer.add_or_refuse(segment_of(lanes, 0, 5, SPEC), 0, 2, 10).num_lost == 5
  assert [stored_range(buffer, lane) for lane in range(2)] == [(0, 5), (0, 0)]


def test_too_many_refusals_of_a_worker_raise():
  buffer = make_buffer(SPEC, lanes=4, max_refused_segments=3)
  bad = replace(good_segment(), action=None)
  for _ in range(2):
    buffer.add_or_refuse(bad, 0, 2, 10)
    buffer.add_or_refuse(bad, 2, 2, 10)
  buffer.add_or_refuse(good_segment(), 0, 2, 10)
  buffer.add_or_refuse(bad, 0, 2, 10)
  message = (
    r"^training_worker_1: 3 segments in a row were refused, the last: action has shape .*=3 allows no more$"
  )
  with pytest.raises(SegmentError, match=message):
    buffer.add_or_refuse(bad, 2, 2, 10)
  assert buffer.stats()["replay/refused_segments"] == 6


def test_stored_steps_are_split_at_gaps():
  """Gaps are where a worker was restarted or steps are missing."""
  lanes = random_lanes(2, 1, 30, SPEC, end_probability=0.3)
  whole = map_fields(lambda x: x[:, 0], segment_of(lanes, 0, 30, SPEC))
  assert whole.is_first[1:].any()
  assert len(split_at_gaps(whole)) == 1
  alive = np.flatnonzero(~whole.is_last[:-2] & ~whole.is_first[1:-1])
  cuts = [int(alive[3]) + 1, int(alive[8]) + 1]
  is_first = whole.is_first.copy()
  is_first[cuts] = True
  with pytest.raises(ValueError, match="is_first after a frame that is not is_last"):
    check_segment(map_fields(lambda x: x[:, None], replace(whole, is_first=is_first)), SPEC)
  parts = split_at_gaps(replace(whole, is_first=is_first))
  assert [len(part.action) for part in parts] == [cuts[0], cuts[1] - cuts[0], 30 - cuts[1]]
  for part in parts:
    check_segment(part, SPEC, num_lanes=1)
  joined = map_fields(lambda *xs: np.concatenate(xs)[:, 0], *parts)
  map_fields(np.testing.assert_array_equal, joined, replace(whole, is_first=is_first))
