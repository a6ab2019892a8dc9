"""Tests of snapshots: they copy only changed blocks, and restoring is exact to the bit."""

import numpy as np
import pytest

from tests.replay.replay_lanes import (
  Disk,
  assert_valid,
  make_buffer,
  make_spec,
  random_lanes,
  segment_of,
  stored_range,
)


def test_only_changed_blocks_are_copied():
  spec = make_spec()
  lanes = random_lanes(0, 2, 1000, spec)
  buffer, disk = make_buffer(spec, lane_capacity=640), Disk()
  buffer.add(segment_of(lanes, 0, 100, spec), 0)
  disk.save(buffer)
  disk.save(buffer)
  buffer.add(segment_of(lanes, 100, 105, spec), 0)
  disk.save(buffer)
  batch = buffer.sample(1)
  buffer.write_back(batch.slot, batch.sequence, batch.n_step_returns[:, 0], batch.action_probs[:, 0], 7)
  disk.save(buffer)
  buffer.add(segment_of(lanes, 105, 645, spec), 0)  # wraps around the ring into its first block
  disk.save(buffer)
  assert disk.written[:3] == [list(range(10)), [], [10]]
  assert disk.written[3] == [int(batch.slot[0]) % 640 // 10]
  assert disk.written[4] == [0, *range(10, 64)]


def test_the_block_of_a_truncated_step_is_copied():
  """When a lane restarts, its last step, which was already saved, becomes truncated."""
  spec = make_spec()
  lanes = random_lanes(0, 2, 64, spec, end_probability=0.0)
  buffer, disk = make_buffer(spec, lane_capacity=640), Disk()
  buffer.add(segment_of(lanes, 0, 20, spec), 0)
  disk.save(buffer)
  buffer.add(segment_of(lanes, 0, 5, spec), 0)
  disk.save(buffer)
  assert disk.written[-1] == [1, 2]


@pytest.mark.parametrize("num_lanes", [1, 2, 3, 5])
def test_repack_into_other_lanes(num_lanes):
  spec = make_spec()
  source, disk = make_buffer(spec, lanes=3, lane_capacity=40, sampling="rank"), Disk()
  lanes = random_lanes(1, 3, 60, spec, end_probability=0.2)
  source.add(segment_of(lanes, 0, 30, spec), 0)
  source.add(segment_of(lanes, 30, 60, spec), 0)
  saved = disk.save(source)
  other = make_buffer(spec, lanes=num_lanes, lane_capacity=130, sampling="proportional")
  num_lost = other.restore(saved)
  assert_valid(other)
  assert other.num_steps + num_lost == source.num_steps == 120
  assert other.num_steps > 0
  assert other.num_added == source.num_added
  other.sample(8)
  first, stop = stored_range(source, 0)
  old = source.storage.trajectory(0, first, stop)
  begin = int(np.flatnonzero(old.is_first)[0])
  ours = other.storage.trajectory(0, 0, stop - first - begin)
  np.testing.assert_array_equal(ours.frame, old.frame[begin:])
  np.testing.assert_array_equal(ours.last_reward, old.last_reward[begin:])
  # The blocks on disk are those of another buffer, so the snapshot contains all written blocks.
  written = set(np.flatnonzero(other.storage.generations).tolist())
  assert other.snapshot(disk.known).blocks.keys() == written


@pytest.mark.parametrize("windows", [(1.0, 0.5), (0.5, 1.0), (0.25, 0.5)])
def test_steps_of_a_buffer_with_another_window_are_kept(windows):
  spec = make_spec()
  source, other = (make_buffer(spec, sampling="rank", window_share=x, window_min=20) for x in windows)
  source.add(segment_of(random_lanes(1, 2, 30, spec), 0, 30, spec), 0)
  source.sample(8)
  assert other.restore(Disk().save(source)) == 0
  assert_valid(other)
  other.sample(8)
  assert other.num_steps == 60


@pytest.mark.parametrize("sampling", ["uniform", "proportional"])
def test_the_window_of_a_repacked_buffer_counts_all_steps(sampling):
  spec = make_spec()
  options = {"sampling": sampling, "window_share": 0.8, "window_min": 30}
  source, disk = make_buffer(spec, lanes=3, lane_capacity=40, **options), Disk()
  lanes = random_lanes(1, 3, 90, spec, end_probability=0.2)
  for first in (0, 30, 60):
    source.add(segment_of(lanes, first, first + 30, spec), 0)
  other = make_buffer(spec, lanes=2, lane_capacity=100, **options)
  other.restore(disk.save(source))
  assert_valid(other)
  # The window has 0.8 of 270 steps, more than the buffer holds, so targets can start where the ring allows.
  unlimited = make_buffer(spec, lanes=2, lane_capacity=100, sampling=sampling)
  unlimited.restore(disk.save(source))
  assert other.num_eligible == unlimited.num_eligible > 0
  again = make_buffer(spec, lanes=2, lane_capacity=100, **options)
  again.restore(Disk().save(other))
  np.testing.assert_array_equal(again.storage.eligible_slots(), other.storage.eligible_slots())
  assert_valid(again)
