"""Tests of area resizing, against a hand-computed case and against OpenCV."""

import numpy as np
import pytest

from moozi.envs.suites.atari.frames import AreaResize


def test_pixel_is_the_mean_of_its_area():
  resize = AreaResize(height=5, width=3, size=2)
  image = np.array([[0, 10, 20], [30, 40, 50], [100, 0, 0], [0, 0, 0], [200, 200, 0]], np.uint8)
  # Each output pixel averages 2.5 rows and 1.5 columns of the image.
  top = (np.array([0, 10, 20]) + [30, 40, 50] + 0.5 * np.array([100, 0, 0])) / 2.5
  bottom = (0.5 * np.array([100, 0, 0]) + [200, 200, 0]) / 2.5
  expected = [[(row[0] + row[1] / 2) / 1.5, (row[1] / 2 + row[2]) / 1.5] for row in (top, bottom)]
  np.testing.assert_array_equal(resize(image[..., None])[..., 0], np.rint(expected))


def test_same_size_is_the_identity():
  image = np.random.default_rng(0).integers(0, 256, (7, 7, 3)).astype(np.uint8)
  np.testing.assert_array_equal(AreaResize(7, 7, 7)(image), image)


def test_channels_do_not_mix():
  image = np.random.default_rng(0).integers(0, 256, (210, 160, 3)).astype(np.uint8)
  resize = AreaResize(210, 160, 96)
  for c in range(3):
    np.testing.assert_array_equal(resize(image)[..., c], resize(image[..., c : c + 1])[..., 0])


def test_enlarging_raises():
  with pytest.raises(ValueError, match="size=8: an image of 210 by 7"):
    AreaResize(210, 7, 8)


@pytest.mark.parametrize("height", [210, 214, 220, 230, 250])  # all screen heights of ALE
@pytest.mark.parametrize(("size", "channels"), [(84, 1), (96, 3), (64, 1), (105, 3), (160, 1)])
def test_equals_opencv(height, size, channels):
  cv2 = pytest.importorskip("cv2")
  random = np.random.default_rng(height * size)
  resize = AreaResize(height, 160, size)
  shape = (height, 160, channels)
  for image in (
    random.integers(0, 256, shape),
    random.choice([0, 64, 142, 236], shape),  # many averages are halfway between two integers
    (random.random(shape) < 0.03) * 200,
    np.full(shape, 255),
  ):
    image = np.ascontiguousarray(image.astype(np.uint8))
    expected = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA).reshape(size, size, channels)
    np.testing.assert_array_equal(resize(image), expected)
