"""Tests of the rows in which replay stores frames."""

import dataclasses

import numpy as np
import pytest

from moozi.core.pytree import fields_of, replace
from moozi.replay.frame_rows import FrameRows, packed, unpacked
from moozi.replay.saved_state import check_snapshot
from moozi.replay.validation import check_segment
from tests.replay.replay_lanes import PARTS, Disk, fill, make_buffer, make_spec, random_lanes, segment_of


@pytest.mark.parametrize(("dtype", "size"), [("bool", 2), ("uint8", 12), ("float32", 48), ("parts", 9 + 12)])
def test_rows_are_small_and_exact(dtype, size):
  spec = make_spec(dtype)
  frames, rows = segment_of(random_lanes(0, 2, 20, spec), 0, 20, spec).frame, FrameRows(spec)
  stored = rows.encode(frames)
  assert stored.shape == (20, 2, rows.size)
  assert stored.dtype == rows.dtype
  assert stored[0, 0].nbytes == size
  again = rows.decode(stored)
  assert again.dtype == frames.dtype
  np.testing.assert_array_equal(again, frames)


def test_every_byte_and_any_other_number():
  spec = make_spec("parts")
  frames = np.zeros((256, 1, 1, 1, 12), np.float32)
  for part in PARTS:
    numbers = frames[..., part.start : part.stop]
    if part.is_bytes:
      numbers[...] = (np.arange(256, dtype=np.uint8) * np.float32(1 / 255)).reshape(-1, 1, 1, 1, 1)
    else:
      numbers[:4] = np.array([-0.0, 1e-45, 3.4e38, -7.25], np.float32).reshape(-1, 1, 1, 1, 1)
  rows = FrameRows(spec)
  rows.check(frames)
  assert rows.decode(rows.encode(frames)).tobytes() == frames.tobytes()


@pytest.mark.parametrize("value", [0.5, -1 / 255, 256 / 255, 1e30])
def test_values_that_were_no_bytes_are_refused(value):
  spec = make_spec("parts")
  segment = segment_of(random_lanes(0, 2, 20, spec), 0, 20, spec)
  check_segment(segment, spec)
  frame = segment.frame.copy()
  frame[3, 1, 0, 0, 5] = value
  with pytest.raises(ValueError, match="frame has values in 'camera' that are not bytes divided by 255"):
    check_segment(replace(segment, frame=frame), spec)


def test_a_snapshot_is_exact_and_checked():
  spec = make_spec("parts")
  lanes = random_lanes(0, 2, 60, spec)
  buffer, other = make_buffer(spec), make_buffer(spec)
  fill(buffer, lanes, spec, [30, 60])
  saved = Disk().save(buffer)
  check_snapshot(saved, spec)
  other.restore(saved)
  np.testing.assert_array_equal(
    buffer.storage.trajectory(0, 30, 60).frame, other.storage.trajectory(0, 30, 60).frame
  )
  number = max(saved.blocks)
  block = {name: x.copy() for name, x in saved.blocks[number].items()}
  block["frame"][0, 0, :4] = np.array([np.nan], np.float32).view(np.uint8)
  with pytest.raises(ValueError, match="frame is not finite"):
    check_snapshot(dataclasses.replace(saved, blocks={**saved.blocks, number: block}), spec)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32", "parts"])
def test_packed_segments_are_stored_as_others(dtype):
  spec = make_spec(dtype)
  segment = segment_of(random_lanes(0, 2, 20, spec), 0, 20, spec)
  sent = packed(segment, spec)
  assert (sent is segment) == (dtype != "bool")
  received = unpacked(sent, spec)
  assert received.frame.dtype == segment.frame.dtype
  np.testing.assert_array_equal(received.frame, segment.frame)
  buffers = [make_buffer(spec), make_buffer(spec)]
  for buffer, each in zip(buffers, (segment, sent), strict=True):
    assert buffer.add_or_refuse(each, 0, 2, 40).num_lost == 0
  first, second = (buffer.storage.trajectory(1, 0, 20) for buffer in buffers)
  for name, value in fields_of(first).items():
    np.testing.assert_array_equal(value, getattr(second, name))


def test_rows_of_another_length_are_refused():
  spec = make_spec("bool")
  segment = packed(segment_of(random_lanes(0, 2, 20, spec), 0, 20, spec), spec)
  refused = make_buffer(spec).add_or_refuse(replace(segment, frame=segment.frame[..., :1]), 0, 2, 40).refused
  assert refused == "frame has shape (20, 2, 1): must be (20, 2, 2)"


def test_frames_of_another_shape_are_sent_as_they_are():
  spec = make_spec("bool")
  segment = segment_of(random_lanes(0, 2, 20, spec), 0, 20, spec)
  wrong = replace(segment, frame=segment.frame[:, :, :1])
  assert packed(wrong, spec) is wrong
  assert "frame has shape (20, 2, 1, 3, 2)" in make_buffer(spec).add_or_refuse(wrong, 0, 2, 40).refused
