"""Tests that the worker's history and the one that replay rebuilds are equal to the bit."""

import numpy as np
import pytest

from moozi.ops.history import init_history, push_action, push_frame, stack_history
from tests.replay.replay_lanes import drawn_positions, fill, make_buffer, make_spec, random_lanes


def histories_of_a_worker(lanes, length, spec):
  """Returns the worker's HistoryState, over all lanes, at each of the T steps."""
  state, seen = init_history(len(lanes), length, spec), []
  for t in range(len(lanes[0])):
    state = push_frame(
      state, np.stack([lane[t].frame for lane in lanes]), np.asarray([lane[t].is_first for lane in lanes])
    )
    seen.append(state)
    state = push_action(state, np.asarray([lane[t].action for lane in lanes], np.int32))
  return seen


@pytest.mark.parametrize(("frame_dtype", "length"), [("bool", 1), ("uint8", 2), ("float32", 4), ("parts", 3)])
@pytest.mark.parametrize("keeps_history", [False, True], ids=["reset", "life-lost"])
@pytest.mark.parametrize("cuts", [[110], list(range(1, 111)), [*range(3, 110, 6), 110]])
def test_rebuilt_history_equals_that_of_the_worker(frame_dtype, length, keeps_history, cuts):
  spec = make_spec(frame_dtype)
  lanes = random_lanes(length, 2, 110, spec, end_probability=0.2)
  if keeps_history:
    # After a lost life, the training episode ends, but the game and its history continue.
    rng = np.random.default_rng(0)
    for lane in lanes:
      for step in lane[1:]:
        step.is_first = step.is_first and bool(rng.random() < 0.5)
  seen = histories_of_a_worker(lanes, length, spec)
  buffer = make_buffer(spec, history_length=length, lane_capacity=110 if len(cuts) == 1 else 80)
  fill(buffer, lanes, spec, cuts)
  batch = buffer.sample(400)
  drawn = drawn_positions(buffer, batch)
  starts = {i for lane, i in drawn if lanes[lane][i].is_first}
  assert len(starts) >= 2
  for row, (lane, i) in enumerate(drawn):
    np.testing.assert_array_equal(batch.frames[row, :length], seen[i].frames[lane])
    np.testing.assert_array_equal(batch.history_actions[row, :length], seen[i].actions[lane])
    if batch.consistency_mask[row]:
      np.testing.assert_array_equal(batch.frames[row, 1:], seen[i + 1].frames[lane])
      np.testing.assert_array_equal(batch.history_actions[row, 1:], seen[i + 1].actions[lane])
    assert batch.consistency_mask[row] == (not lanes[lane][i].is_last)


def test_stacked_history_is_the_same():
  spec = make_spec()
  lanes = random_lanes(0, 2, 60, spec, end_probability=0.2)
  seen = histories_of_a_worker(lanes, 3, spec)
  buffer = make_buffer(spec, history_length=3)
  fill(buffer, lanes, spec, [16, 32, 48, 60])
  batch = buffer.sample(100)
  rebuilt = stack_history(
    batch.frames[:, :3].astype(np.float32), batch.history_actions[:, :3], spec.policy_groups
  )
  for row, (lane, i) in enumerate(drawn_positions(buffer, batch)):
    image = stack_history(seen[i].frames.astype(np.float32), seen[i].actions, spec.policy_groups)
    np.testing.assert_array_equal(rebuilt[row], image[lane])
