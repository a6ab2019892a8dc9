"""Tests that search roots read from stored lanes in parts equal those of an oracle."""

import numpy as np
import pytest

from moozi.acting.stored_positions import LaneRoots, join_roots, with_searched
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import SearchedRoots
from tests.ops.oracles import oracle_history
from tests.replay.replay_lanes import make_spec, random_lanes, segment_of


@pytest.mark.parametrize("history_length", [1, 3])
@pytest.mark.parametrize("cuts", [[40], [1, 2, 3, 40], [6, 21, 40]])
def test_histories_are_those_of_the_oracle_wherever_the_parts_are_cut(history_length, cuts):
  spec = make_spec("uint8")
  lanes = random_lanes(4, 2, 40, spec, 0.2)
  whole = segment_of(lanes, 0, 40, spec)
  roots = LaneRoots(spec, history_length)
  num_terminal = 0
  for first, stop in zip([0, *cuts[:-1]], cuts, strict=True):
    for lane in (1, 0):
      steps = map_fields(lambda x, a=first, b=stop, i=lane: x[a:b, i], whole)
      got = roots.add(lane, steps)
      live = [i for i in range(first, stop) if not lanes[lane][i].is_last or lanes[lane][i].is_truncated]
      assert (got.slot + first).tolist() == live
      num_terminal += stop - first - len(live)
      for row, i in enumerate(live):
        frames, actions = oracle_history(lanes[lane], i, history_length)
        for j in range(history_length):
          k = frames[j]
          expected = np.zeros(spec.frame_shape, np.uint8) if k is None else lanes[lane][k].frame
          np.testing.assert_array_equal(got.frames[row, j], expected)
          k = actions[j]
          assert got.history_actions[row, j] == (0 if k is None else lanes[lane][k].action)
        for name in ("legal_actions_mask", "root_value", "action_probs", "searched_version"):
          np.testing.assert_array_equal(getattr(got, name)[row], getattr(whole, name)[i, lane])
  assert num_terminal > 0


def test_a_lane_that_begins_in_the_middle_has_no_history_before():
  spec = make_spec()
  steps = map_fields(lambda x: x[:, 0], segment_of(random_lanes(0, 1, 20, spec, 0.0), 5, 20, spec))
  got = LaneRoots(spec, 3).add(0, steps)
  assert not got.frames[0, :2].any()
  assert got.frames[0, 2].any()
  assert (got.history_actions[0] == 0).all()
  assert got.history_actions[1].tolist() == [0, 0, steps.action[0]]


def test_a_new_search_takes_the_place_of_the_old_one_and_nothing_else():
  spec = make_spec()
  steps = map_fields(lambda x: x[:, 0], segment_of(random_lanes(0, 1, 20, spec, 0.3), 0, 20, spec))
  roots = LaneRoots(spec, 1).add(0, steps)
  joined = join_roots([roots, roots])
  count = len(roots.slot)
  searched = SearchedRoots(
    root_value=np.arange(2 * count, dtype=np.float32),
    action_probs=np.full((2 * count, spec.num_actions), 0.25, np.float32),
    searched_version=np.full(2 * count, 70, np.int32),
    slot=joined.slot,
    sequence=joined.sequence,
  )
  before = map_fields(np.array, steps)
  new = with_searched(steps, roots.slot, searched, slice(count, 2 * count))
  np.testing.assert_array_equal(new.root_value[roots.slot], np.arange(count, 2 * count))
  assert (new.searched_version[roots.slot] == 70).all()
  rest = np.setdiff1d(np.arange(20), roots.slot)
  assert rest.size
  for name, value in fields_of(steps).items():
    np.testing.assert_array_equal(value, getattr(before, name), err_msg=name)
    kept = rest if name in ("root_value", "action_probs", "searched_version") else slice(None)
    np.testing.assert_array_equal(getattr(new, name)[kept], value[kept], err_msg=name)
