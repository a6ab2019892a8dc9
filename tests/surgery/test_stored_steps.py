"""Replay of an environment with fewer planes and actions, converted and restored."""

import dataclasses

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.pytree import fields_of
from moozi.replay.saved_state import check_snapshot
from moozi.surgery.pairing import correspond
from moozi.surgery.stored_steps import StepConverter
from tests.replay.replay_lanes import assert_valid, fill, make_buffer, make_spec, random_lanes


def filled(spec):
  lanes = random_lanes(0, 2, 30, spec)
  buffer = make_buffer(spec)
  fill(buffer, lanes, spec, [10, 20, 30])
  return buffer


@pytest.mark.parametrize("frame_dtype", ["bool", "uint8", "float32"])
def test_converted_replay_draws_the_same_steps(frame_dtype):
  old = dataclasses.replace(make_spec(frame_dtype), action_names=("a", "b"))
  height, width, planes = old.frame_shape
  new = dataclasses.replace(
    old, frame_shape=(height, width, planes + 2), num_env_actions=3, action_names=("b", "new", "a")
  )
  first = filled(old)
  converter = StepConverter(old, new, correspond(old, new))
  assert not converter.is_identity
  snapshot = converter.snapshot(first.snapshot())
  check_snapshot(snapshot, new)
  second = make_buffer(new, seed=5)
  second.restore(snapshot)
  assert_valid(second)
  before, after = (fields_of(buffer.sample(32)) for buffer in (first, second))
  number = np.array([0, 3, 1])  # of the dummy, a and b
  for name in ("actions", "history_actions"):
    np.testing.assert_array_equal(after.pop(name), number[before.pop(name)])
  frames = before.pop("frames"), after.pop("frames")
  np.testing.assert_array_equal(frames[1][..., :planes], frames[0])
  assert not frames[1][..., planes:].any()
  probs = before.pop("action_probs"), after.pop("action_probs")
  np.testing.assert_array_equal(probs[1][..., number], probs[0])
  assert not probs[1][..., 2].any()
  for name, x in before.items():
    np.testing.assert_array_equal(after[name], x, err_msg=name)


def test_what_cannot_be_converted():
  old = make_spec()
  other = dataclasses.replace(old, name="another:game")
  with pytest.raises(UserError, match="are not steps of another:game"):
    StepConverter(old, other, correspond(old, other))
  fewer = dataclasses.replace(old, num_env_actions=1)
  with pytest.raises(UserError, match=r"action 1 of .* is missing in the new environment"):
    StepConverter(old, fewer, correspond(old, fewer))
  snapshot = filled(old).snapshot()
  assert StepConverter(old, old, correspond(old, old)).snapshot(snapshot) is snapshot
