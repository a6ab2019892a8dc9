"""Tests of videos in both formats."""

import shutil
import subprocess

import imageio_ffmpeg
import numpy as np
import pytest

from moozi.vis.video import write_video
from tests.vis.test_gif import make_images


def decoded(path, size):
  """Returns ffmpeg's description of a video, and its frames; `size` is (height, width)."""
  # imageio_ffmpeg's own reader forks the process, which is unsafe with JAX's threads.
  command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
  done = subprocess.run(command, capture_output=True, check=True)
  return done.stderr.decode(), np.frombuffer(done.stdout, np.uint8).reshape(-1, *size, 3)


@pytest.mark.parametrize("size", [(20, 30), (21, 31)])
def test_mp4_round_trip(tmp_path, size):
  images = make_images(5, *size)
  path = write_video(tmp_path / "a.mp4", images, fps=12)
  # The height and width of H.264 frames are rounded up to even numbers.
  about, frames = decoded(path, (size[0] + size[0] % 2, size[1] + size[1] % 2))
  for words in ("Video: h264", "yuv420p", "12 fps"):
    assert words in about
  assert len(frames) == 5 + 12
  # Compares the middle of each image's bar, because compression mixes the colors at its edges.
  for i, frame in enumerate([*frames[:5], frames[-1]]):
    bar = frame[4:16, 5 * min(i, 4) + 2, 0]
    assert bar.min() > 128
  assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_gif_by_suffix(tmp_path):
  assert write_video(tmp_path / "a.gif", make_images(), fps=12).read_bytes().startswith(b"GIF89a")


def test_failed_mp4_leaves_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: shutil.which("false"))
  with pytest.raises(OSError, match="ffmpeg failed"):
    write_video(tmp_path / "a.mp4", make_images(5, 400, 400), fps=12)
  assert not list(tmp_path.iterdir())


def test_no_image(tmp_path):
  with pytest.raises(ValueError, match="images is empty"):
    write_video(tmp_path / "a.mp4", [], fps=12)
