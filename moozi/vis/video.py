"""Writes videos; the suffix of the path is `.gif`, or `.mp4` with the extra `moozi[video]`."""

import contextlib
import importlib.util
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from moozi.core.errors import UserError
from moozi.core.text import pip_install
from moozi.io.atomic_write import atomic_path
from moozi.vis.gif import read_images, write_gif

SUFFIXES = (".gif", ".mp4")
_LAST_FRAME_S = 1


def check_video_path(option: str, path: Path) -> None:
  """Raises UserError if the suffix is wrong, the folder is missing, or an MP4 has no encoder.

  `option` is the command-line option that set the path, for the message.
  """
  if path.suffix not in SUFFIXES:
    raise UserError(f"{option}={path}: must end in {' or '.join(SUFFIXES)}")
  if not path.parent.is_dir():
    raise UserError(f"{option}={path}: cannot be written: there is no folder {path.parent}; create it first")
  if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
    raise UserError(
      f"{option}={path}: MP4 needs the package imageio-ffmpeg; install it with {pip_install('video')}, "
      "or choose a name that ends in .gif"
    )


def write_video(path: Path, images: Sequence[np.ndarray], fps: float) -> Path:
  """Writes a GIF or an MP4 atomically, and returns its path. The last frame is shown for at least a second.

  The images are [h, w, 3] uint8, all of one size.

  Raises: ValueError: as `write_gif`. OSError: the encoder fails, or the file cannot be written.
  """
  return write_gif(path, images, fps) if path.suffix == ".gif" else _write_mp4(path, images, fps)


def _write_mp4(path: Path, images: Sequence[np.ndarray], fps: float) -> Path:
  """Writes H.264 in the pixel format yuv420p; pads odd heights and widths to even ones."""
  from imageio_ffmpeg import get_ffmpeg_exe

  if not images:
    raise ValueError("images is empty: must have at least one")
  height, width = images[0].shape[:2]
  given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
  filters = f"tpad=stop_mode=clone:stop_duration={_LAST_FRAME_S},pad=ceil(iw/2)*2:ceil(ih/2)*2"
  # `faststart` lets a browser play the video while it loads.
  made = ["-vf", filters, "-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
  with atomic_path(path) as partial, tempfile.TemporaryFile() as log:
    command = [get_ffmpeg_exe(), "-loglevel", "error", "-y", *given, *made, "-f", "mp4", str(partial)]
    # imageio_ffmpeg's own writer forks the process, which is not safe with JAX's threads.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log) as encoder:  # noqa: S603
      assert encoder.stdin is not None
      # If the encoder fails, it closes its input; the error is raised below.
      with contextlib.suppress(BrokenPipeError):
        for image in read_images(images):
          encoder.stdin.write(image.tobytes())
        encoder.stdin.close()
    log.seek(0)
    if encoder.returncode:
      raise OSError(f"ffmpeg failed: {log.read().decode(errors='replace').strip()[:200]}")
  return path
