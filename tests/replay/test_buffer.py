"""Tests of the replay buffer: eligible steps, targets, memory and refused segments."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.core.config import ReplayConfig, TargetsConfig
from moozi.core.pytree import fields_of, map_fields, replace
from moozi.replay.buffer import ReplayBuffer
from tests.ops.oracles import oracle_target
from tests.replay.replay_lanes import (
  SAMPLINGS,
  assert_is_oracle,
  assert_valid,
  drawn_positions,
  fill,
  filled_buffer,
  make_buffer,
  make_spec,
  random_lanes,
  segment_of,
  stored_range,
)

TARGETS = TargetsConfig(history_length=2, unroll_steps=2, n_step=3, discount=0.9)


def test_replay_imports_no_jax():
  code = """
import sys
import numpy as np
from tests.replay.replay_lanes import SAMPLINGS, assert_valid, filled_buffer
for sampling in SAMPLINGS:
  buffer, _, _ = filled_buffer(sampling=sampling)
  batch = buffer.sample_many(2, 8)
  buffer.update_priorities(batch.slot, batch.sequence, np.ones((2, 8)))
  slot = batch.slot[0]
  buffer.write_back(slot, batch.sequence[0], np.ones(8), np.ones((8, 3)) / 3, np.ones(8))
  assert_valid(buffer)
  buffer.restore(buffer.snapshot())
  buffer.stats()
  buffer.histograms()
assert "moozi.replay.buffer" in sys.modules
loaded = {name.split(".")[0] for name in sys.modules} & {"jax", "jaxlib", "haiku", "mctx", "ray"}
assert not loaded, loaded
"""
  subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


class TestEligibility:
  """The newest K + n steps of a lane are not eligible, and in a full ring neither are the oldest L."""

  @pytest.mark.parametrize(
    ("length", "first", "stop"),
    [(5, 0, 0), (6, 0, 1), (20, 0, 15), (21, 3, 16), (47, 29, 42)],
  )
  def test_by_hand(self, length, first, stop):
    # With K + n = 5, L = 2 and rings of 20, step i is eligible once step i + 5 is stored.
    spec = make_spec()
    buffer = make_buffer(spec, lanes=1, lane_capacity=20)
    lanes = random_lanes(0, 1, length, spec)
    fill(buffer, lanes, spec, [*range(4, length, 4), length])
    assert buffer.num_eligible == stop - first
    if stop > first:
      drawn = {i for _, i in drawn_positions(buffer, buffer.sample(500))}
      assert drawn == set(range(first, stop))
    else:
      assert not buffer.can_sample(1)
      with pytest.raises(ValueError, match="nothing to sample"):
        buffer.sample(1)

  @pytest.mark.parametrize("sampling", SAMPLINGS)
  def test_exactly_the_eligible_steps_are_drawn(self, sampling):
    buffer, _, _ = filled_buffer(length=60, sampling=sampling, priority_exponent=0.3)
    drawn = set(drawn_positions(buffer, buffer.sample(5000)))
    assert drawn == {(lane, i) for lane in range(2) for i in range(22, 55)}

  def test_lanes_of_different_lengths(self):
    spec = make_spec()
    lanes = random_lanes(0, 3, 30, spec)
    buffer = make_buffer(spec, lanes=3)
    buffer.add(segment_of(lanes[:1], 0, 30, spec), 0)
    buffer.add(segment_of(lanes[1:], 0, 8, spec), 1)
    assert buffer.num_eligible == 25 + 3 + 3
    drawn = set(drawn_positions(buffer, buffer.sample(3000)))
    assert drawn == {(0, i) for i in range(25)} | {(lane, i) for lane in (1, 2) for i in range(3)}

  def test_training_starts_with_enough_steps_and_an_eligible_batch(self):
    spec = make_spec()
    lanes = random_lanes(0, 2, 30, spec)
    buffer = make_buffer(spec, min_steps_to_learn=20)
    buffer.add(segment_of(lanes, 0, 9, spec), 0)
    assert buffer.num_steps == 18
    assert not buffer.can_sample(1)
    buffer.add(segment_of(lanes, 9, 10, spec), 0)
    assert buffer.num_steps == 20
    assert buffer.can_sample(10)
    assert not buffer.can_sample(11)

  def test_counts(self):
    buffer, _, _ = filled_buffer(length=60)
    assert (buffer.num_steps, buffer.num_added, buffer.num_eligible) == (80, 120, 2 * 33)
    assert stored_range(buffer, 1) == (20, 60)


class TestTargets:
  @settings(max_examples=12)
  @given(
    seed=st.integers(0, 2**32 - 1),
    sampling=st.sampled_from(SAMPLINGS),
    num_players=st.sampled_from([1, 2]),
    history_length=st.integers(1, 4),
    unroll_steps=st.integers(1, 4),
    n_step=st.integers(1, 5),
    length=st.integers(14, 90),
    lane_capacity=st.integers(20, 40),
    end_probability=st.sampled_from([0.05, 0.3]),
    with_unrolled_frames=st.booleans(),
    data=st.data(),
  )
  def test_targets_equal_the_oracle(
    self,
    seed,
    sampling,
    num_players,
    history_length,
    unroll_steps,
    n_step,
    length,
    lane_capacity,
    end_probability,
    with_unrolled_frames,
    data,
  ):
    ahead = unroll_steps if with_unrolled_frames else 1
    targets = TargetsConfig(
      history_length=history_length, unroll_steps=unroll_steps, n_step=n_step, discount=0.9
    )
    spec = make_spec(num_players=num_players)
    lanes = random_lanes(seed, 2, length, spec, end_probability)
    options = {"seed": seed, "sampling": sampling, "frames_ahead": ahead}
    buffer = make_buffer(spec, lane_capacity=lane_capacity, **options, **targets.model_dump())
    cuts = []
    while (cuts[-1] if cuts else 0) < length:
      cuts.append(min(length, (cuts[-1] if cuts else 0) + data.draw(st.integers(1, 20))))
      fill_from = cuts[-2] if len(cuts) > 1 else 0
      buffer.add(segment_of(lanes, fill_from, cuts[-1], spec), 0)
      assert_valid(buffer)
      if buffer.num_eligible:
        assert_is_oracle(buffer, buffer.sample(6), lanes, targets)
    if buffer.num_eligible:
      assert_is_oracle(buffer, buffer.sample(30), lanes, targets)

  def test_old_starts_have_search_values_as_targets(self):
    """An age counts the steps of all environments: 16 in two lanes are eight steps of a lane."""
    buffer, lanes, _ = filled_buffer(length=40, search_value_age=16)
    batch = buffer.sample(60)
    num_old = 0
    for row, (lane, i) in enumerate(drawn_positions(buffer, batch)):
      expected = oracle_target(lanes[lane], i, 2, 3, 0.9)
      is_old = 39 - i >= 8
      num_old += is_old
      want = expected["root_values" if is_old else "n_step_returns"]
      np.testing.assert_allclose(batch.n_step_returns[row], want, rtol=1e-5, atol=1e-5)
      np.testing.assert_allclose(batch.rewards[row], expected["rewards"])
    assert 0 < num_old < 60

  def test_targets_do_not_depend_on_segment_lengths(self):
    spec = make_spec()
    lanes = random_lanes(3, 2, 70, spec)
    batches = []
    for cuts in ([70 // 2, 70], list(range(1, 71)), list(range(7, 71, 7)), [3, 30, 31, 40, 70]):
      buffer = make_buffer(spec, lane_capacity=40)
      fill(buffer, lanes, spec, cuts)
      batches.append(buffer.sample_many(2, 100))
    for batch in batches[1:]:
      map_fields(np.testing.assert_array_equal, batches[0], batch)

  def test_sample_equals_sample_many_of_one(self):
    one, many = filled_buffer()[0].sample(20), filled_buffer()[0].sample_many(1, 20)
    map_fields(lambda a, b: np.testing.assert_array_equal(a, b[0]), one, many)

  @pytest.mark.parametrize("sampling", SAMPLINGS)
  def test_shapes_and_dtypes(self, sampling):
    buffer, _, _ = filled_buffer(sampling=sampling, history_length=3, unroll_steps=4)
    batch = buffer.sample_many(2, 5)
    expected = {
      "frames": ((4, 2, 3, 2), np.bool_),
      "history_actions": ((4,), np.int32),
      "actions": ((4,), np.int32),
      "rewards": ((4,), np.float32),
      "action_probs": ((5, 3), np.float32),
      "root_values": ((5,), np.float32),
      "n_step_returns": ((5,), np.float32),
      "unroll_mask": ((5,), np.float32),
      "consistency_mask": ((), np.float32),
      "importance_ratio": ((), np.float32),
      "slot": ((), np.int64),
      "sequence": ((), np.int64),
      "acted_version": ((), np.int32),
      "searched_version": ((), np.int32),
    }
    for name, value in fields_of(batch).items():
      assert value.shape == (2, 5, *expected[name][0]), name
      assert value.dtype == expected[name][1], name
      assert value.flags.c_contiguous, name

  def test_a_batch_is_a_copy(self):
    buffer, lanes, _ = filled_buffer()
    batch = buffer.sample(50)
    for value in fields_of(batch).values():
      value.fill(1)
    assert_is_oracle(buffer, buffer.sample(50), lanes, TARGETS)
    assert_valid(buffer)


class TestStorage:
  @pytest.mark.parametrize("frame_dtype", ["bool", "uint8", "float32", "parts"])
  def test_trajectory_returns_the_added_steps(self, frame_dtype):
    spec = make_spec(frame_dtype, num_players=2)
    lanes = random_lanes(1, 2, 60, spec)
    buffer = make_buffer(spec)
    fill(buffer, lanes, spec, [13, 26, 39, 60])
    first, stop = stored_range(buffer, 1)
    ours, theirs = buffer.storage.trajectory(1, first, stop), segment_of(lanes, first, stop, spec)
    for name, value in fields_of(ours).items():
      np.testing.assert_array_equal(value, getattr(theirs, name)[:, 1], err_msg=name)
      assert value.dtype == getattr(theirs, name).dtype, name
    with pytest.raises(ValueError, match="not all stored"):
      buffer.storage.trajectory(1, first - 1, stop)
    with pytest.raises(ValueError, match="not all stored"):
      buffer.storage.trajectory(1, first, stop + 1)

  def test_memory_per_step(self):
    sizes = {}
    for frame_dtype in ("bool", "uint8"):
      buffer = make_buffer(make_spec(frame_dtype), lanes=1, lane_capacity=1000)
      sizes[frame_dtype] = buffer.stats()["replay/mib"] * 2**20 / 1000
    # A frame of twelve planes takes 2 bytes as bool and 12 as uint8; nothing else depends on the dtype.
    assert sizes["uint8"] - sizes["bool"] == 10
    assert sizes["bool"] < 2 + 45

  def test_a_restarted_lane_truncates_its_episode(self):
    spec = make_spec()
    lanes = random_lanes(0, 2, 12, spec, end_probability=0.0)
    restarted = random_lanes(1, 2, 20, spec, end_probability=0.0)
    buffer = make_buffer(spec)
    buffer.add(segment_of(lanes, 0, 12, spec), 0)
    assert buffer.stats()["replay/cut"] == 0
    buffer.add(segment_of(restarted, 0, 20, spec), 0)
    assert buffer.stats()["replay/cut"] == 2
    assert_valid(buffer)
    joined = []
    for old, new in zip(lanes, restarted, strict=True):
      old[-1].is_last = old[-1].is_truncated = True
      old[-1].action = 0
      joined.append(old + new)
    batch = buffer.sample(200)
    rows = [row for row, (_, i) in enumerate(drawn_positions(buffer, batch)) if i >= 12]
    batch = replace(batch, acted_version=batch.acted_version.copy())
    batch.acted_version[rows] += 12
    assert_is_oracle(buffer, batch, joined, TARGETS)

  def test_a_lane_that_begins_after_an_end_is_not_cut(self):
    spec = make_spec()
    lanes = random_lanes(0, 1, 6, spec, end_probability=0.0)
    lanes[0][-1].is_last, lanes[0][-1].action = True, 0
    buffer = make_buffer(spec, lanes=1)
    buffer.add(segment_of(lanes, 0, 6, spec), 0)
    buffer.add(segment_of(random_lanes(1, 1, 6, spec), 0, 6, spec), 0)
    assert buffer.stats()["replay/cut"] == 0
    assert not buffer.storage.trajectory(0, 5, 6).is_truncated[0]


class TestBadInput:
  def bad(self, **changes):
    spec = make_spec()
    segment = segment_of(random_lanes(0, 2, 6, spec, end_probability=0.0), 0, 6, spec)
    for name, (where, value) in changes.items():
      array = np.array(getattr(segment, name))
      array[where] = value
      segment = replace(segment, **{name: array})
    return segment

  @pytest.mark.parametrize(
    ("changes", "message"),
    [
      ({"last_reward": ((2, 0), np.nan)}, "last_reward is not finite"),
      ({"root_value": ((2, 0), np.inf)}, "root_value is not finite"),
      ({"action_probs": ((2, 0, 1), np.nan)}, "action_probs is not finite"),
      ({"is_truncated": ((2, 0), True)}, "is_truncated on a frame that is not is_last"),
      ({"is_last": ((2, 0), True)}, "must be the dummy"),
      ({"is_last": ((2, 0), True), "action": ((2, 0), 0)}, "the dummy must be legal on terminal frames"),
      ({"legal_actions_mask": ((2, 0, 0), True)}, "the dummy must be legal on terminal frames and illegal"),
      ({"to_play": ((2, 0), 1)}, "to_play outside 0 … 0"),
      ({"is_first": ((2, 0), True)}, "is_first after a frame that is not is_last"),
      ({"is_first": ((0, 1), False)}, "the first step of a lane must be is_first"),
    ],
  )
  def test_a_refused_segment_changes_nothing(self, changes, message):
    buffer = make_buffer(make_spec())
    with pytest.raises(ValueError, match=message):
      buffer.add(self.bad(**changes), 0)
    assert buffer.num_steps == 0
    buffer.add(self.bad(), 0)
    assert_valid(buffer)

  def test_wrong_shapes(self):
    buffer, good = make_buffer(make_spec()), self.bad()
    with pytest.raises(ValueError, match="action_probs has shape"):
      buffer.add(replace(good, action_probs=good.action_probs[..., :2]), 0)
    with pytest.raises(ValueError, match="must be \\[T, B"):
      buffer.add(map_fields(lambda x: x[:, 0], good), 0)
    with pytest.raises(ValueError, match="a lane keeps 9"):
      make_buffer(make_spec(), lane_capacity=9).add(
        segment_of(random_lanes(0, 2, 10, make_spec()), 0, 10, make_spec()), 0
      )

  def test_too_small_buffers_are_refused(self):
    with pytest.raises(ValueError, match="capacity leaves 7 steps"):
      make_buffer(lane_capacity=7)
    with pytest.raises(ValueError, match="min_steps_to_learn=81"):
      make_buffer(min_steps_to_learn=81)
    with pytest.raises(ValueError, match="num_lanes=0"):
      ReplayBuffer(ReplayConfig(), TARGETS, make_spec(), 0, 0)


class TestWindow:
  @pytest.mark.parametrize("sampling", SAMPLINGS)
  def test_holds_the_newest_share_of_all_steps(self, sampling):
    spec = make_spec()
    lanes = random_lanes(0, 2, 60, spec)
    buffer = make_buffer(spec, sampling=sampling, window_share=0.5, window_min=20)
    # K + n = 5 steps follow a start step; rings of 40 keep the last 40, of which the first L = 2 are history.
    first = {12: 2, 20: 10, 30: 15, 50: 25, 60: 30}
    begin = 0
    for stop, expected in first.items():
      buffer.add(segment_of(lanes, begin, stop, spec), 0)
      begin = stop
      assert_valid(buffer)
      drawn = {index for _, index in drawn_positions(buffer, buffer.sample(2000))}
      assert drawn == set(range(expected, stop - 5))
      assert buffer.num_eligible == 2 * (stop - 5 - expected)

  def test_of_the_ring_is_the_limit(self):
    spec = make_spec()
    buffer = make_buffer(spec, lane_capacity=20, window_share=0.9, window_min=12)
    fill(buffer, random_lanes(0, 2, 60, spec), spec, [*range(10, 61, 10)])
    assert {i for _, i in drawn_positions(buffer, buffer.sample(2000))} == set(range(42, 55))

  def test_must_hold_a_target(self):
    with pytest.raises(ValueError, match="window_min leaves 5 steps to each of 2 lanes"):
      make_buffer(window_share=0.5, window_min=10)
