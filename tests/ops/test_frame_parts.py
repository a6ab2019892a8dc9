"""Tests that frames of several arrays are cut into these arrays."""

import dataclasses

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from moozi.core.frame_parts import FramePart
from moozi.core.spec import EnvSpec
from moozi.envs.suites.gymnasium import wrap
from moozi.ops.frame_parts import split_frames, stack_parts

PIXELS = spaces.Box(0, 255, (3, 4, 2), np.uint8)
MANY = {
  "speed": spaces.Box(-np.inf, np.inf, (), np.float32),
  "matrix": spaces.Box(-np.inf, np.inf, (2, 3), np.float32),
  "camera": PIXELS,
  "inner": spaces.Tuple((spaces.MultiBinary((2, 3, 1)), spaces.Discrete(3), spaces.MultiDiscrete([2, 3]))),
  "first": spaces.Box(0, 255, (3, 32, 33), np.uint8),
  "empty": spaces.Box(0, 1, (0,), np.float32),
}


class Shows(gymnasium.Env):
  """Shows one observation."""

  action_space = spaces.Discrete(2)

  def __init__(self, space, shown):
    self.observation_space, self._shown = space, shown

  def reset(self, *, seed=None, options=None):
    return self._shown, {}


def frame_and_parts(space, shown):
  env = wrap("test:shows", Shows(space, shown))
  return env.reset().observation.frame, env.env_spec.frame_parts


def test_each_array_comes_back_as_given():
  space = spaces.Dict(MANY, seed=0)
  shown = space.sample()
  frame, parts = frame_and_parts(space, shown)
  assert frame.dtype == np.float32
  found = dict(zip((part.name for part in parts), split_frames(frame[0, 0], parts), strict=True))
  bits, index, pair = shown["inner"]
  expected = {
    "camera": shown["camera"].astype(np.float32) * np.float32(1 / 255),
    "first": np.moveaxis(shown["first"], 0, -1).astype(np.float32) * np.float32(1 / 255),
    "inner 0": bits,
    "inner 1": np.eye(3)[index],
    "inner 2": np.concatenate([np.eye(2)[pair[0]], np.eye(3)[pair[1]]]),
    "matrix": shown["matrix"],
    "speed": shown["speed"][None],
  }
  assert list(found) == list(expected)
  assert [part.name for part in parts if part.is_bytes] == ["camera", "first"]
  for name, array in expected.items():
    np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_the_order_of_keys_does_not_matter():
  space, other = spaces.Dict(MANY, seed=0), spaces.Dict(dict(reversed(MANY.items())))
  shown = space.sample()
  frame, parts = frame_and_parts(space, shown)
  again, same = frame_and_parts(other, dict(reversed(shown.items())))
  assert parts == same
  np.testing.assert_array_equal(frame, again)


def test_bytes_stay_bytes():
  space = spaces.Dict({"a": PIXELS, "b": spaces.Box(0, 255, (2, 2, 1), np.uint8)}, seed=0)
  shown = space.sample()
  frame, parts = frame_and_parts(space, shown)
  assert frame.dtype == np.uint8
  for array, name in zip(split_frames(frame[0, 0], parts), "ab", strict=True):
    np.testing.assert_array_equal(array, shown[name])


@pytest.mark.parametrize(
  "space",
  [
    PIXELS,
    spaces.Dict({"a": spaces.Box(0, 1, (2, 3), np.float32), "b": spaces.Discrete(3)}),
    spaces.Dict({"camera": PIXELS, "action_mask": spaces.MultiBinary(2)}),
  ],
)
def test_other_observations_are_not_cut(space):
  assert wrap("test:shows", Shows(space, None)).env_spec.frame_parts == ()


def test_stacks_have_the_oldest_frame_first():
  parts = (FramePart("n", (2,), 0), FramePart("image", (2, 1, 3), 2), FramePart("m", (1,), 8))
  vectors = np.arange(4 * 2 * 9, dtype=np.float32).reshape(4, 2, 9)
  for x in (vectors, jnp.asarray(vectors)):
    (image,), numbers = stack_parts(x, parts)
    first, second = (vectors[:, i, 2:8].reshape(4, 2, 1, 3) for i in (0, 1))
    np.testing.assert_array_equal(image, np.concatenate([first, second], axis=-1))
    np.testing.assert_array_equal(
      numbers, np.concatenate([vectors[:, 0, :2], vectors[:, 1, :2], vectors[:, 0, 8:], vectors[:, 1, 8:]], 1)
    )
  (image,), nothing = stack_parts(vectors[..., 2:8], (FramePart("image", (2, 1, 3), 0),))
  assert image.shape == (4, 2, 1, 6)
  assert nothing.shape == (4, 0)


@pytest.mark.parametrize(
  ("starts", "shape"),
  [((0, 7), (1, 1, 14)), ((0, 6), (1, 1, 13)), ((1, 7), (1, 1, 13)), ((0, 6), (1, 12, 1))],
)
def test_parts_that_are_not_the_frame(starts, shape):
  parts = tuple(FramePart("image", (2, 1, 3), start) for start in starts)
  spec = EnvSpec(name="t:t", frame_shape=(1, 1, 12), frame_dtype="float32", num_env_actions=2)
  right = (FramePart("a", (2, 1, 3), 0), FramePart("b", (6,), 6))
  assert dataclasses.replace(spec, frame_parts=right).frame_parts == right
  with pytest.raises(ValueError, match="frame_parts: must be all numbers of a frame"):
    dataclasses.replace(spec, frame_shape=shape, frame_parts=parts)
