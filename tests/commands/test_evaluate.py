"""What `moozi evaluate` draws; its figures are in tests/commands/test_cli.py."""

import json

import pytest
from PIL import Image


@pytest.mark.parametrize("kind", ["catch", "board", "ppo"])
def test_the_first_episode_and_several_are_drawn(runs, door, tmp_path, kind):
  path = tmp_path / "new" / "seen.gif"
  status, out, _ = door("evaluate", runs[kind], "--episodes", "3", "--json", "--returns", "--gif", path)
  assert status == 0
  lengths = json.loads(out)["lengths"]
  with Image.open(path) as one, Image.open(path.with_name("seen_tiles.gif")) as tiles:
    assert one.n_frames == lengths[0] + 1
    assert tiles.n_frames == max(lengths) + 1
    assert one.size != tiles.size


def test_pictures_can_be_cut_short(runs, door, tmp_path):
  path = tmp_path / "short.gif"
  assert door("evaluate", runs["catch"], "--episodes", "2", "--gif", path, "--gif-frames", "4")[0] == 0
  for each in (path, path.with_name("short_tiles.gif")):
    with Image.open(each) as picture:
      assert picture.n_frames == 4


def test_a_picture_that_cannot_be_is_refused(runs, refused, tmp_path):
  assert "--gif-frames: is for --gif" in refused("evaluate", runs["catch"], "--gif-frames", "4")
  assert "--gif-frames=0" in refused("evaluate", runs["catch"], "--gif", "a.gif", "--gif-frames", "0")
  assert "--gif=seen.png: must end in .gif" in refused("evaluate", runs["catch"], "--gif", "seen.png")
  (tmp_path / "file").touch()
  path = tmp_path / "file" / "seen.gif"
  message = refused("evaluate", runs["catch"], "--episodes", "1", "--gif", path)
  assert f"--gif={path}: cannot be written: " in message
