"""The GIFs of `moozi evaluate`; its figures are tested in test_cli.py."""

import json

import pytest
from PIL import Image


@pytest.mark.parametrize(
  "kind",
  ["catch", pytest.param("board", marks=pytest.mark.slow), pytest.param("ppo", marks=pytest.mark.slow)],
)
def test_evaluate_gif(runs, cli, tmp_path, kind):
  path = tmp_path / "new" / "seen.gif"
  status, out, _ = cli("evaluate", runs[kind], "--episodes", "3", "--json", "--returns", "--gif", path)
  assert status == 0
  lengths = json.loads(out)["lengths"]
  with Image.open(path) as one, Image.open(path.with_name("seen_tiles.gif")) as tiles:
    assert one.n_frames == lengths[0] + 1
    assert tiles.n_frames == max(lengths) + 1
    assert one.size != tiles.size


def test_evaluate_gif_frames(runs, cli, tmp_path):
  path = tmp_path / "short.gif"
  assert cli("evaluate", runs["catch"], "--episodes", "2", "--gif", path, "--gif-frames", "4")[0] == 0
  for each in (path, path.with_name("short_tiles.gif")):
    with Image.open(each) as picture:
      assert picture.n_frames == 4


def test_evaluate_gif_errors(runs, refused, tmp_path):
  assert "--gif-frames: needs --gif" in refused("evaluate", runs["catch"], "--gif-frames", "4")
  assert "'--gif-frames': 0: must be an integer from" in refused(
    "evaluate", runs["catch"], "--gif", "a.gif", "--gif-frames", "0"
  )
  assert "--gif=seen.png: must end in .gif" in refused("evaluate", runs["catch"], "--gif", "seen.png")
  (tmp_path / "file").touch()
  path = tmp_path / "file" / "seen.gif"
  message = refused("evaluate", runs["catch"], "--episodes", "1", "--gif", path)
  assert f"--gif={path}: cannot be written: " in message
