"""Tests of the videos of `moozi evaluate`; test_cli.py tests its figures."""

import json

import pytest
from PIL import Image

from moozi.commands import train
from moozi.commands.evaluate import _describe_evaluation


@pytest.mark.parametrize(
  "kind",
  ["catch", pytest.param("board", marks=pytest.mark.slow), pytest.param("ppo", marks=pytest.mark.slow)],
)
def test_evaluate_gif(runs, cli, tmp_path, kind):
  path = tmp_path / "seen.gif"
  status, out, err = cli("evaluate", runs[kind], "--episodes", "3", "--json", "--returns", "--gif", path)
  assert status == 0
  assert [line for line in err.splitlines() if line.startswith("video: ")] == [
    f"video: {path}",
    f"video: {tmp_path / 'seen_tiles.gif'}",
  ]
  lengths = json.loads(out)["lengths"]
  with Image.open(path) as one, Image.open(path.with_name("seen_tiles.gif")) as tiles:
    assert one.n_frames == lengths[0] + 1
    assert tiles.n_frames == max(lengths) + 1
    assert one.size != tiles.size


@pytest.mark.slow
def test_evaluate_gif_frames(runs, cli, tmp_path):
  path = tmp_path / "short.gif"
  assert cli("evaluate", runs["catch"], "--episodes", "2", "--video", path, "--video-frames", "4")[0] == 0
  for each in (path, path.with_name("short_tiles.gif")):
    with Image.open(each) as picture:
      assert picture.n_frames == 4


@pytest.mark.slow
def test_evaluate_mp4(runs, cli, tmp_path):
  path = tmp_path / "seen.mp4"
  status, _, err = cli("evaluate", runs["catch"], "--episodes", "2", "--video", path)
  assert status == 0
  for each in (path, path.with_name("seen_tiles.mp4")):
    assert f"video: {each}" in err
    assert each.read_bytes()[4:8] == b"ftyp"


@pytest.mark.slow
def test_evaluate_video_errors(runs, refused, tmp_path, monkeypatch):
  assert "--video-frames: needs --video" in refused("evaluate", runs["catch"], "--video-frames", "4")
  assert "'--gif-frames': 0: must be an integer from" in refused(
    "evaluate", runs["catch"], "--video", "a.gif", "--gif-frames", "0"
  )
  message = refused("evaluate", runs["catch"], "--gif", "seen.png")
  assert "--video=seen.png: must end in .gif or .mp4" in message
  path = tmp_path / "new" / "seen.gif"
  assert f"there is no folder {path.parent}; create it first" in refused(
    "evaluate", runs["catch"], "--gif", path
  )
  assert not path.parent.exists()
  path = tmp_path / "seen.gif"
  path.mkdir()
  message = refused("evaluate", runs["catch"], "--episodes", "1", "--video", path)
  assert f"--video={path}: cannot be written: " in message
  path = tmp_path / ("x" * 300) / "seen.gif"
  message = refused("evaluate", runs["catch"], "--video", path)
  assert f"--video={path}: cannot be written: File name too long" in message
  monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
  message = refused("evaluate", runs["catch"], "--video", tmp_path / "seen.mp4")
  assert "MP4 needs the package imageio-ffmpeg" in message
  assert "pip install 'moozi[video]'" in message


def test_human_normalized_score_follows_the_return():
  names = ("return_mean", "return_std", "return_min", "return_max", "length_mean")
  result = {"env": "atari:Pong", "checkpoint": "c", "env_steps": 5, "episodes": 2, "distinct_episodes": 2}
  result |= dict.fromkeys(names, 1.0)
  assert "human" not in _describe_evaluation(result)
  text = _describe_evaluation(result | {"human_normalized": 0.61473})
  assert text.endswith("\nhuman-normalized score: 0.615 (random play 0, human 1)")
  summary = {"env": "atari:Pong", "test_return_mean": 14.6, "test_return_std": 1.0}
  summary |= {"test_episodes": 2, "test_at_env_steps": 5}
  printed = train._describe_return(summary)
  assert printed.endswith("5 environment steps\nhuman-normalized score: 1.000 (random play 0, human 1)")
  assert "human" not in train._describe_return(summary | {"env": "minatar:breakout"})
