"""Tests of GIFs with tiled episodes."""

import numpy as np
import pytest

from moozi.core.spec import EnvSpec
from moozi.vis.evaluation_gifs import tile_images

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


@pytest.mark.parametrize("num_episodes", [1, 2, 9, 64])
def test_sheet_size(num_episodes):
  image = tile_images(**make_tiles([1] * num_episodes))[0]
  assert image.shape[1] <= 420
  assert image.shape[0] <= 620


def test_own_pictures():
  images = tile_images(**make_tiles([2, 2], own=(105, 80)))
  assert images[0].shape == (6 + 105 + 18 + 6 + 18, 6 + 2 * (80 + 6), 3)


def test_invalid_arguments_raise():
  with pytest.raises(ValueError, match="frames is empty"):
    tile_images([], [], SPEC, [], [])
  with pytest.raises(ValueError, match=r"returns: lengths \[2\]"):
    tile_images(**make_tiles([3]) | {"returns": [np.zeros(2)]})
  with pytest.raises(ValueError, match=r"to_play: lengths \[\]"):
    tile_images(**make_tiles([3]) | {"to_play": []})
