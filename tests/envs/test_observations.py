"""Tests of frames made from observations."""

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs.observations import array_format, one_hot_format


@pytest.mark.parametrize(
  ("shape", "frame_shape"),
  [((), (1, 1, 1)), ((4,), (1, 1, 4)), ((6, 5), (6, 5, 1)), ((6, 5, 3), (6, 5, 3))],
)
@pytest.mark.parametrize(
  ("dtype", "frame_dtype"),
  [(bool, "bool"), (np.uint8, "float32"), (np.float64, "float32"), (np.int64, "float32")],
)
def test_shapes_and_dtypes(shape, frame_shape, dtype, frame_dtype):
  frames = array_format("env.name=x", shape, dtype, 0, 1)
  assert (frames.shape, frames.dtype) == (frame_shape, frame_dtype)
  frame = frames.encode(np.ones(shape, dtype))
  assert frame.shape == frame_shape
  assert frame.dtype == np.dtype(frame_dtype)
  np.testing.assert_array_equal(frame, np.ones(frame_shape))


def test_bytes_keep_their_type():
  frames = array_format("env.name=x", (2, 2), np.uint8, 0, 255)
  frame = frames.encode(np.array([[0, 7], [128, 255]], np.uint8))
  assert frame.dtype == np.uint8
  np.testing.assert_array_equal(frame[..., 0], [[0, 7], [128, 255]])


def test_bounded_entries_are_scaled():
  low = [-4.0, -np.inf, 0.0, -2.0, -3.4e38, 0.0]
  high = [2.0, 5.0, 10.0, np.inf, 3.4e38, 0.0]
  frames = array_format("env.name=x", (6,), np.float32, low, high)
  frame = frames.encode(np.array([2.0, 5.0, 10.0, -2.0, 7.0, 0.0]))
  np.testing.assert_allclose(frame[0, 0], [0.5, 5.0, 1.0, -2.0, 7.0, 0.0])


def test_integers_become_one_hot():
  frames = one_hot_format("env.name=x", 3, start=-1)
  assert (frames.shape, frames.dtype) == ((1, 1, 3), "bool")
  for i, observation in enumerate([-1, np.int64(0), np.array(1)]):
    np.testing.assert_array_equal(frames.encode(observation)[0, 0], np.arange(3) == i)
  for wrong in (-2, 2):
    with pytest.raises(UserError, match="spec says -1 to 1"):
      frames.encode(wrong)


@pytest.mark.parametrize("dtype", [np.uint8, bool, np.float32, np.float64])
def test_frame_is_a_copy(dtype):
  observation = np.zeros((3,), dtype)
  frame = array_format("env.name=x", (3,), dtype).encode(observation)
  observation[:] = 1
  np.testing.assert_array_equal(frame, np.zeros((1, 1, 3)))


def test_observation_against_the_spec():
  encode = array_format("env.name=x", (2,), np.float32).encode
  with pytest.raises(UserError, match=r"of shape \[3\]; its spec says \[2\]"):
    encode(np.zeros(3))


@pytest.mark.parametrize(
  ("dtype", "value"),
  [*((np.uint8, value) for value in (0.5, 300, -1, np.nan)), (bool, 2), (bool, 0.5)],
)
def test_values_that_the_type_cannot_hold(dtype, value):
  encode = array_format("env.name=x", (2,), dtype, 0, 255).encode
  given = np.array([0, value])
  message = (
    rf"env.name=x: an observation of {given.dtype} has values that .*type {np.dtype(dtype)} cannot hold"
  )
  with pytest.raises(UserError, match=message):
    encode(given)


@pytest.mark.parametrize(("dtype", "given"), [(bool, np.int8), (np.uint8, np.int64), (np.uint8, float)])
def test_values_of_another_type_that_fit(dtype, given):
  frame = array_format("env.name=x", (2,), dtype, 0, 255).encode(np.array([0, 1], given))
  assert frame.dtype == dtype
  assert frame.tolist() == [[[0, 1]]]


@pytest.mark.parametrize("shape", [(2, 2, 2, 2), (0,), (5000, 5000)])
def test_unsupported_shapes(shape):
  with pytest.raises(UserError, match=r"env.name=x: observations of shape"):
    array_format("env.name=x", shape, np.float32)


def test_unsupported_types():
  with pytest.raises(UserError, match="observations of type complex128"):
    array_format("env.name=x", (2,), complex)
  with pytest.raises(UserError, match="observations of shape"):
    one_hot_format("env.name=x", 10**8)
