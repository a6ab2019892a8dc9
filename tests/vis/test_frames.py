"""Pictures of frames: which colour, which size, for every kind of frame."""

import itertools

import numpy as np
import pytest

from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.vis.frames import BACKGROUND, PALETTE, plane_colours, render_frame


def make_spec(frame_shape, frame_dtype):
  return EnvSpec(name="test:frames", frame_shape=frame_shape, frame_dtype=frame_dtype, num_env_actions=2)


def test_the_lowest_plane_is_seen_and_empty_cells_are_background():
  frame = np.zeros((1, 3, 3), bool)
  frame[0, 0, [1, 2]] = True
  frame[0, 1, [0, 1, 2]] = True
  picture = render_frame(frame, make_spec((1, 3, 3), "bool"))
  assert picture.dtype == np.uint8
  assert picture.tolist() == [[list(PALETTE[1]), list(PALETTE[0]), list(BACKGROUND)]]


@pytest.mark.parametrize("scale", [1, 3, 8])
def test_scale_is_pixels_to_a_cell(scale):
  frame = np.zeros((2, 4, 2), bool)
  frame[1, 2, 1] = True
  picture = render_frame(frame, make_spec((2, 4, 2), "bool"), scale)
  assert picture.shape == (2 * scale, 4 * scale, 3)
  lit = np.argwhere(picture.any(axis=-1))
  assert lit.min(axis=0).tolist() == [scale, 2 * scale]
  assert lit.max(axis=0).tolist() == [2 * scale - 1, 3 * scale - 1]
  assert picture[scale, 2 * scale].tolist() == list(PALETTE[1])


def test_large_cells_are_told_apart_by_a_grid():
  picture = render_frame(np.ones((1, 2, 1), bool), make_spec((1, 2, 1), "bool"), 8)
  assert (picture[0, 7] < picture[0, 6]).all()
  assert (picture[7, 0] < picture[6, 0]).all()


@pytest.mark.parametrize(
  "name", [w.name for library in ("minatar", "tiny") for w in registry.list_environments(library)]
)
def test_every_env_there_is_has_a_picture(name):
  env = registry.make(name, seed=0)
  height, width, _ = env.env_spec.frame_shape
  picture = render_frame(env.reset().observation.frame, env.env_spec, 4)
  assert picture.shape == (4 * height, 4 * width, 3)
  assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 1


def test_images_are_shown_as_they_are():
  random = np.random.default_rng(0)
  rgb = random.integers(0, 256, (5, 4, 3)).astype(np.uint8)
  np.testing.assert_array_equal(render_frame(rgb, make_spec((5, 4, 3), "uint8"), 1), rgb)
  grey = rgb[..., :1]
  np.testing.assert_array_equal(
    render_frame(grey, make_spec((5, 4, 1), "uint8")), np.repeat(grey, 3, axis=-1)
  )
  stacked = np.concatenate([rgb, 255 - grey], axis=-1)
  newest = render_frame(stacked, make_spec((5, 4, 4), "uint8"))
  np.testing.assert_array_equal(newest, np.repeat(255 - grey, 3, axis=-1))


def test_float_images_are_stretched_and_float_planes_are_planes():
  picture = render_frame(np.array([[[-1.0], [0.0], [1.0]]], np.float32), make_spec((1, 3, 1), "float32"))
  assert picture[0, :, 0].tolist() == [0, 127, 255]
  flat = render_frame(np.full((1, 3, 1), 7, np.float32), make_spec((1, 3, 1), "float32"))
  assert (flat == 0).all()
  planes = np.array([[[0.0, 1.0], [0.0, 0.0]]], np.float32)
  picture = render_frame(planes, make_spec((1, 2, 2), "float32"))
  assert picture.tolist() == [[list(PALETTE[1]), list(BACKGROUND)]]


def test_vectors_are_bars_up_and_down():
  vector = np.array([[[1.0, -1.0, 0.0, 100.0, np.nan, np.inf]]], np.float32)
  picture = render_frame(vector, make_spec((1, 1, 6), "float32"), 4)
  assert picture.shape == (40, 24, 3)

  def heights(i):
    lit = (picture[:, 4 * i] > 100).any(axis=-1)
    return int(lit[:20].sum()), int(lit[20:].sum())

  assert heights(0) == (10, 0)
  assert heights(1) == (0, 10)
  assert heights(2) == heights(4) == (0, 0)
  assert heights(3) == heights(5) == (20, 0)


@pytest.mark.parametrize(
  ("frame", "scale", "message"),
  [
    (np.zeros((2, 2, 2), bool), 0, "scale=0"),
    (np.zeros((2, 2, 1), bool), 1, "frame: bool"),
    (np.zeros((2, 2, 2), np.uint8), 1, "frame: uint8"),
  ],
)
def test_what_is_not_the_envs_is_refused(frame, scale, message):
  with pytest.raises(ValueError, match=message):
    render_frame(frame, make_spec((2, 2, 2), "bool"), scale)


def test_more_planes_than_colours_are_still_told_apart():
  colours = plane_colours(25)
  assert colours.shape == (25, 3)
  assert len(np.unique(colours, axis=0)) == 25


# Linear RGB as it is seen without the long-wave or the middle-wave cones (Vienot, Brettel and Mollon 1999).
SEEN = {
  "all cones": np.eye(3),
  "protanope": np.array([[0.1124, 0.8876, 0.0], [0.1124, 0.8876, 0.0], [0.004, -0.004, 1.0]]),
  "deuteranope": np.array([[0.2928, 0.7072, 0.0], [0.2928, 0.7072, 0.0], [-0.0223, 0.0223, 1.0]]),
}


@pytest.mark.parametrize("eyes", SEEN)
def test_colours_are_told_apart_by_all_eyes(eyes):
  colours = np.array([*PALETTE, BACKGROUND]) / 255
  seen = np.clip((colours**2.2) @ SEEN[eyes].T, 0, 1) ** (1 / 2.2)
  for (i, a), (j, b) in itertools.combinations(enumerate(seen), 2):
    assert np.linalg.norm(a - b) > 0.2, (i, j)
