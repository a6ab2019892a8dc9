"""Tests of GIFs with tiled episodes."""

import numpy as np
import pytest

from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.vis.evaluation_gifs import tile_images
from moozi.vis.frames import draw_frame
from moozi.vis.lettering import FAINT, fit, paper, write

SPEC = EnvSpec(name="test:environment", frame_shape=(4, 4, 1), frame_dtype="bool", num_env_actions=2)


def make_tiles(lengths, spec=SPEC, own=None):
  """Returns the fields of tiled episodes; episode i has cell (t mod 4, i mod 4) set at step t."""
  frames = [np.zeros((n, *spec.frame_shape), bool) for n in lengths]
  for i, episode in enumerate(frames):
    for t in range(len(episode)):
      episode[t, t % 4, i % 4, 0] = True
  return {
    "frames": frames,
    "returns": [np.arange(n, dtype=float) for n in lengths],
    "spec": spec,
    "to_play": [np.zeros(n, np.int32) for n in lengths],
    "pictures": [own and np.zeros((n, *own, 3), np.uint8) for n in lengths],
  }


def test_ended_tiles_are_darkened():
  given = make_tiles([2, 4, 3])
  images = tile_images(**given)
  assert len(images) == 4
  assert len({image.shape for image in images}) == 1
  size = 128
  places = [(6, 6), (6, 6 + size + 6), (6 + size + 18 + 6, 6)]
  for i, (top, left) in enumerate(places):
    for t, image in enumerate(images):
      last = len(given["frames"][i]) - 1
      tile = draw_frame(given["frames"][i][min(t, last)], SPEC, size)
      expected = tile // 2 if t >= last and last < 3 else tile
      np.testing.assert_array_equal(image[top : top + size, left : left + size], expected)


def test_captions_show_return():
  given = make_tiles([2])
  same = given | {"returns": [np.zeros(2)]}
  np.testing.assert_array_equal(tile_images(**given)[0], tile_images(**same)[0])
  assert (tile_images(**given)[1] != tile_images(**same)[1]).any()


@pytest.mark.parametrize(
  ("num_episodes", "own"), [(1, None), (9, None), (64, None), (2, (105, 80)), (1, (9, 3))]
)
def test_a_line_below_the_tiles_says_what_their_numbers_are(num_episodes, own):
  image = tile_images(**make_tiles([1] * num_episodes, own=own))[0]
  expected = paper(18, image.shape[1])
  write(expected, fit("episode, its return so far", image.shape[1] - 12, 12), 6, 0, FAINT, 12)
  np.testing.assert_array_equal(image[-18:], expected)
  assert (expected != expected[-1, -1]).any()


@pytest.mark.parametrize("num_episodes", [1, 2, 9, 64])
def test_sheet_size(num_episodes):
  image = tile_images(**make_tiles([1] * num_episodes))[0]
  assert image.shape[1] <= 420
  assert image.shape[0] <= 620


def test_own_pictures():
  given = make_tiles([2, 2], own=(105, 80))
  images = tile_images(**given)
  assert images[0].shape == (6 + 105 + 18 + 6 + 18, 6 + 2 * (80 + 6), 3)


def test_legend():
  spec = registry.env_spec("minatar:breakout")
  frames = [np.zeros((1, 10, 10, 4), bool)]
  given = make_tiles([1]) | {"frames": frames, "spec": spec}
  with_legend = tile_images(**given)[0]
  without = tile_images(**given | {"spec": EnvSpec(**spec.to_dict() | {"name": "test:plain"})})[0]
  assert with_legend.shape[0] > without.shape[0]


def test_invalid_arguments_raise():
  with pytest.raises(ValueError, match="frames is empty"):
    tile_images([], [], SPEC, [], [])
  with pytest.raises(ValueError, match=r"returns: lengths \[2\]"):
    tile_images(**make_tiles([3]) | {"returns": [np.zeros(2)]})
  with pytest.raises(ValueError, match=r"to_play: lengths \[\]"):
    tile_images(**make_tiles([3]) | {"to_play": []})
