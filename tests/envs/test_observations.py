"""Tests of frames made from observations."""

import logging

import numpy as np
import pytest

from moozi.core.errors import EnvValueError, UserError
from moozi.envs import observations
from moozi.envs.observations import array_format, bounds_are_strict, one_hot_format
from moozi.envs.validation import warn_once


@pytest.fixture
def notes(caplog, monkeypatch):
  """Returns a function that returns the warnings so far."""
  warn_once.cache_clear()
  monkeypatch.setattr(observations, "_clipped", set())
  caplog.set_level(logging.WARNING, "moozi.envs")
  return lambda: [record.getMessage() for record in caplog.records]


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


@pytest.mark.parametrize("observation", [["a", "b"], [[1], 2], [None, 1.0], [1j, 0], {"a": 1}, None])
def test_observations_that_are_no_numbers(observation):
  for frames in (array_format("env.name=x", (2,), np.float32), one_hot_format("env.name=x", 3)):
    with pytest.raises(UserError, match=r"env.name=x: an observation .*; must be an array of numbers"):
      frames.encode(observation)


@pytest.mark.parametrize("observation", [0.5, -0.5, np.nan, np.inf, [1, 2], 3, -1])
def test_integers_are_whole_and_in_range(observation):
  encode = one_hot_format("env.name=x", 3).encode
  np.testing.assert_array_equal(encode(np.array([2.0]))[0, 0], [False, False, True])
  with pytest.raises(UserError, match="its spec says 0 to 2, an integer"):
    encode(observation)


# --- channels first -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 84, 84), (3, 210, 160), (1, 64, 64), (12, 32, 40)])
def test_pictures_with_channels_first_are_recognized(shape, notes):
  frames, _ = (array_format("env.name=x", shape, np.uint8, 0, 255) for _ in range(2))
  assert (frames.shape, frames.dtype) == ((shape[1], shape[2], shape[0]), "uint8")
  picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
  frame = frames.encode(picture)
  for channel in range(shape[0]):
    np.testing.assert_array_equal(frame[..., channel], picture[channel])
  assert frame.flags.c_contiguous
  (note,) = notes()
  assert "pictures with channels first" in note
  assert ("targets.history_length=4" in note) == (shape[0] == 4)


@pytest.mark.parametrize(
  ("shape", "dtype", "high"),
  [
    ((4, 84, 84), np.float32, 1.0),  # numbers and not bytes: a note
    ((2, 6, 7), np.int8, 1),  # a board
    ((17, 8, 8), np.float32, 1.0),
    ((3, 3, 3), np.int8, 1),
    ((40, 64, 64), np.uint8, 255),  # too many channels
    ((3, 8, 8), np.uint8, 255),  # too small
  ],
)
def test_shapes_that_may_have_channels_first_are_noted(shape, dtype, high, notes):
  frames = array_format("env.name=x", shape, dtype, 0, high)
  assert frames.shape == shape
  (note,) = notes()
  assert f"read as {shape[0]} high, {shape[1]} wide, {shape[2]} channels; if the channels come first" in note
  assert "targets.history_length" in note


@pytest.mark.parametrize(
  "shape", [(84, 84, 4), (210, 160, 3), (6, 7, 2), (8, 8, 17), (8, 8, 111), (1, 5, 1), (10, 10, 4)]
)
def test_channels_last_are_not_noted(shape, notes):
  assert array_format("env.name=x", shape, np.uint8, 0, 255).shape == shape
  assert not notes()


def test_stacks_of_pictures_name_the_fix():
  with pytest.raises(UserError, match=r"targets\.history_length stacks frames"):
    array_format("env.name=x", (4, 84, 84, 3), np.uint8, 0, 255)


# --- bounds ---------------------------------------------------------------------------------------------


def test_values_outside_their_bounds_are_clipped_with_one_note(notes):
  low, high = [0.0, -np.inf, -4.0, 0.0], [1.0, np.inf, 2.0, np.inf]
  frames = array_format("env.name=x", (4,), np.float32, low, high)
  np.testing.assert_array_equal(frames.encode([1.0, 1e6, -4.0, 1e6])[0, 0], np.float32([1, 1e6, -1, 1e6]))
  assert not notes()
  for _ in range(2):
    np.testing.assert_array_equal(frames.encode([4.0, -1e6, 3.0, -1.0])[0, 0], np.float32([1, -1e6, 0.5, 0]))
  (note,) = notes()
  assert "an observation has 4 at [0]; its bounds are 0 … 1" in note
  assert "values outside are clipped" in note


def test_trials_refuse_values_outside_their_bounds():
  encode = array_format("env.name=x", (2, 2), np.int16, -3, 5).encode
  with bounds_are_strict():
    encode([[5, -3], [0, 1]])
    with pytest.raises(
      UserError, match=r"^env.name=x: an observation has -4 at \[1, 0\]; its bounds are -3 … 5"
    ):
      encode([[5, -3], [-4, 1]])


def test_rounding_at_a_bound_is_unchanged(notes):
  encode = array_format("env.name=x", (1,), np.float64, -0.1, 0.1).encode
  np.testing.assert_array_equal(encode([0.1 + 1e-7]).item(), np.float32(0.1 + 1e-7) * np.float32(10))
  assert not notes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bounds", [(0, 1), (0, np.inf), (-np.inf, np.inf)])
def test_values_that_are_not_finite_are_refused(value, bounds, notes):
  encode = array_format("env.name=x", (2,), np.float32, *bounds).encode
  with pytest.raises(EnvValueError, match=r"^env.name=x: an observation that is not finite$"):
    encode([value, 7.0])
  assert not notes()
