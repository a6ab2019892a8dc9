"""Tests that pictures of any form become uint8[h, w, 3], or are refused with what they are."""

import re

import numpy as np
import pytest
from PIL import Image

from moozi.ops.pictures import MAX_SIDE, shrink, stack_pictures, to_picture

COLOR = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 12
GREY = COLOR[..., 0]


class Convertible:
  """As an array of JAX or PyTorch: NumPy can convert it."""

  def __array__(self, dtype=None, copy=None):
    return COLOR.copy()


@pytest.mark.parametrize(
  ("drawn", "expected"),
  [
    (COLOR, COLOR),
    (COLOR.astype(np.int64), COLOR),
    (COLOR.astype(">i2"), COLOR),
    (COLOR[:, ::-1], COLOR[:, ::-1]),
    (COLOR / 255.0, COLOR),
    ((COLOR / 255.0).astype(np.float16), COLOR),
    (COLOR.tolist(), COLOR),
    (list(COLOR), COLOR),  # rows of pixels, which are no pictures
    ([np.zeros_like(COLOR), COLOR], COLOR),
    ((COLOR / 255.0,), COLOR),
    (Convertible(), COLOR),
    (Image.fromarray(COLOR), COLOR),
    (Image.fromarray(COLOR).quantize(16), COLOR),  # its array has indices of a palette
    (GREY, np.repeat(GREY[..., None], 3, axis=2)),
    (GREY[..., None], np.repeat(GREY[..., None], 3, axis=2)),
    (GREY > 100, np.repeat(np.where(GREY > 100, 255, 0)[..., None], 3, axis=2)),
    (np.full((2, 3, 3), 1.0 + 1e-6, np.float32), np.full((2, 3, 3), 255)),
    (np.concatenate([COLOR, np.full((2, 3, 1), 255, np.uint8)], axis=2), COLOR),
    (np.concatenate([COLOR, np.zeros((2, 3, 1), np.uint8)], axis=2), np.full((2, 3, 3), 255)),
  ],
)
def test_forms_of_pictures(drawn, expected):
  picture = to_picture(drawn)
  assert picture.dtype == np.uint8
  np.testing.assert_array_equal(picture, expected)


def test_no_picture():
  assert to_picture(None) is None


def test_pictures_are_copies():
  """An environment may draw into one array for all its pictures."""
  buffer = np.zeros((2, 2, 3), np.uint8)
  picture = to_picture(buffer)
  buffer[:] = 255
  assert not picture.any()


@pytest.mark.parametrize(
  ("drawn", "message"),
  [
    ("a text\nof two lines", "a str that is not an array of numbers"),
    (b"bytes", "a bytes that is not an array of numbers"),
    (object(), "a object that is not an array of numbers"),
    ([], "float64[0]; must be uint8[h, w, 3]"),
    ([[1, 2], [3]], "a list that is not an array"),
    (3.5, "float64[]; must be uint8[h, w, 3]"),
    (np.zeros((2, 3, 3), complex), "a ndarray that is not an array of numbers"),
    (
      np.zeros((3, 20, 30), np.uint8),
      "uint8[3, 20, 30]; must be uint8[h, w, 3], [h, w, 4], or [h, w] in",
    ),
    (np.zeros((2, 2, 20, 3), np.uint8), "uint8[2, 2, 20, 3]; must be"),
    (np.zeros((0, 20, 3), np.uint8), "uint8[0, 20, 3]; must be"),
    (COLOR.astype(np.float64), "float64[2, 3, 3] with values from 0 to 204; floats must be from 0 to 1"),
    (COLOR.astype(np.int64) - 1, "int64[2, 3, 3] with values from -1 to 203; integers must be from 0 to 255"),
    (COLOR.astype(np.uint16) + 256, "uint16[2, 3, 3] with values from 256 to 460"),
    (np.full((2, 3, 3), np.nan), "float64[2, 3, 3] with values from nan to nan; floats must be from 0 to 1"),
    (np.where(COLOR == 0, np.inf, 0.5), "float64[2, 3, 3] with values from 0.5 to inf"),
  ],
)
def test_other_values_are_refused(drawn, message):
  with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
    to_picture(drawn)


@pytest.mark.parametrize("shape", [(720, 1280, 3), (1280, 720, 4), (3000, 1, 3), (1, 5000)])
def test_large_pictures_are_scaled_down(shape):
  drawn = np.zeros(shape, np.uint8)
  drawn[len(drawn) // 2 :] = 255
  picture = to_picture(drawn)
  assert max(picture.shape) == MAX_SIDE
  assert picture.shape == shrink(np.zeros((*shape[:2], 3), np.uint8), MAX_SIDE).shape
  assert picture.shape[0] == max(1, shape[0] * MAX_SIDE // max(shape[:2]))
  assert picture[-1, -1].tolist() == [255, 255, 255]


def test_pictures_of_an_episode_have_one_size():
  wide, tall = np.full((2, 4, 3), 10, np.uint8), np.full((4, 2, 3), 20, np.uint8)
  stacked = stack_pictures([wide, tall, wide])
  assert stacked.shape == (3, 2, 4, 3)
  np.testing.assert_array_equal(stacked[2], wide)
  # The tall one is scaled to 2 by 1, with white beside it.
  assert sorted(stacked[1, :, :, 0].ravel().tolist()) == [20] * 2 + [255] * 6


@pytest.mark.parametrize("pictures", [[], [None], [None, COLOR], [COLOR, None]])
def test_an_episode_has_all_pictures_or_none(pictures):
  assert stack_pictures(pictures) is None
