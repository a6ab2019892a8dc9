"""Metrics out: one JSON object a tick in metrics.jsonl, and the same scalars to TensorBoard."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moozi.core.errors import UserError
from moozi.core.histogram import Histogram
from moozi.io.append_file import AppendFile
from moozi.io.atomic_write import write_text
from moozi.io.plain_json import to_plain_json
from moozi.io.tensorboard_file import TensorBoardFile

TICK_KEYS = ("env_steps", "learner_steps", "wall_s")


class MetricsSink:
  """Writes ticks. Opens its files at once and appends; close it, or use it in a `with`.

  Where a disk is full its methods raise OSError; what they were given is kept and goes before the next.
  """

  def __init__(
    self,
    metrics_path: Path,
    tensorboard_path: Path | None,
    keep: tuple[int, int, float] | None = None,
  ) -> None:
    """Opens the files.

    Args:
      metrics_path: metrics.jsonl; what is in it stays, but for a last line that was cut off by a kill.
      tensorboard_path: a folder for TensorBoard events; None writes none.
      keep: (env_steps, learner_steps, wall_s) that a resumed run goes on from: later ticks are taken out, and
        TensorBoard shows no event of a later step.
    """
    if metrics_path.exists():
      whole = metrics_path.read_bytes()
      os.truncate(metrics_path, whole.rfind(b"\n") + 1)
    purge_step = None
    if keep is not None:
      if metrics_path.exists():
        _cut(metrics_path, keep)
      purge_step = keep[0] + 1
    self._file = AppendFile(metrics_path)
    self._tensorboard = None if tensorboard_path is None else TensorBoardFile(tensorboard_path, purge_step)

  def write(self, *, env_steps: int, learner_steps: int, wall_s: float, scalars: Mapping[str, Any]) -> None:
    """Writes one tick; a scalar that is not finite is null in the JSON.

    Args:
      env_steps: environment steps so far.
      learner_steps: updates so far.
      wall_s: seconds since the run's start.
      scalars: numbers by name, NumPy and JAX scalars among them.
    Raises: ValueError: a name that is one of the tick's own keys, or a value that is not one number. OSError:
      it waits to be written.
    """
    taken = [name for name in scalars if name in TICK_KEYS]
    if taken:
      raise ValueError(f"scalars: {taken[0]!r} is a key of the tick itself")
    numbers = {name: _number(name, value) for name, value in scalars.items()}
    tick = {
      "env_steps": int(env_steps),
      "learner_steps": int(learner_steps),
      "wall_s": round(float(wall_s), 3),
    }
    line = json.dumps(to_plain_json(tick | numbers), allow_nan=False) + "\n"
    # Both, whichever of them fails.
    with contextlib.ExitStack() as both:
      if self._tensorboard is not None:
        shown = numbers | {k: tick[k] for k in ("learner_steps", "wall_s")}
        both.callback(self._tensorboard.write_scalars, shown, int(env_steps))
      self._file.write(line.encode())

  def write_histograms(self, histograms: Mapping[str, Histogram], env_steps: int) -> None:
    """Shows histograms in TensorBoard's tabs for them; metrics.jsonl has scalars only.

    Args:
      histograms: by tag.
      env_steps: environment steps so far.
    Raises: OSError: they wait to be written.
    """
    if self._tensorboard is not None:
      self._tensorboard.write_histograms(histograms, int(env_steps))

  def write_gif(self, name: str, gif: bytes, size: tuple[int, int], env_steps: int) -> None:
    """Shows an animated GIF in TensorBoard's image tab.

    Args:
      name: the tag.
      gif: the encoded file.
      size: (height, width) in pixels.
      env_steps: environment steps so far.
    Raises: OSError: it waits to be written.
    """
    # tensorboardX's add_video would need moviepy, and drops the video in silence without it.
    if self._tensorboard is not None:
      self._tensorboard.write_gif(name, gif, size, int(env_steps))

  def sync(self) -> None:
    """Has the ticks on the disk, so that they outlive the machine. Raises OSError: they are not."""
    self._file.sync()

  def close(self) -> None:
    """Closes the files; a second call does nothing. Raises OSError: what waited is lost."""
    with contextlib.ExitStack() as both:
      if self._tensorboard is not None:
        both.callback(self._tensorboard.close)
      self._file.close()

  def __enter__(self) -> "MetricsSink":
    return self

  def __exit__(self, *_: object) -> None:
    self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
  """The ticks of a metrics.jsonl, in order; a last line that was cut off is left out.

  Raises: UserError: the file is not there or cannot be read, or another line is not a JSON object.
  """
  try:
    if path.exists() and not path.is_file():
      raise ValueError("not a file")
    lines = path.read_text("utf-8").splitlines(keepends=True)
  except FileNotFoundError:
    raise UserError(f"{path}: is not there; `moozi train` writes it as it goes") from None
  except (OSError, ValueError) as e:
    raise UserError(f"{path}: cannot be read: {e}") from None
  ticks = []
  for number, line in enumerate(lines, start=1):
    try:
      tick = json.loads(line)
      if not isinstance(tick, dict):
        raise ValueError("not an object")
    except (ValueError, RecursionError) as e:
      if number == len(lines) and not line.endswith("\n"):
        break
      raise UserError(f"{path}: line {number} is not a JSON object: {e}") from None
    ticks.append(tick)
  return ticks


def _number(name: str, value: Any) -> int | float:
  array = np.asarray(value)
  if array.size != 1 or array.dtype.kind not in "biuf":
    raise ValueError(f"scalars: {name!r} is {value!r}, not one number")
  item = array.reshape(()).item()
  return int(item) if isinstance(item, bool) else item


def _cut(path: Path, keep: tuple[int, int, float]) -> None:
  """Takes out the ticks that came after these counters."""
  lines = path.read_text("utf-8").splitlines(keepends=True)
  whole = [
    line
    for line, tick in zip(lines, read_metrics(path), strict=True)
    if all(tick.get(key, 0) <= most for key, most in zip(TICK_KEYS, keep, strict=True))
  ]
  write_text(path, "".join(whole))
