"""Writes metrics to metrics.jsonl, one JSON object per tick, and to TensorBoard; reads metrics.jsonl."""

import contextlib
import json
import os
import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moozi.core.config import Config
from moozi.core.histogram import Histogram
from moozi.io.atomic_write import write_bytes
from moozi.io.bounded_read import read_lines
from moozi.io.plain_data import number_in, read_json_lines, to_plain_json
from moozi.io.sinks import AppendFile

TICK_KEYS = ("env_steps", "learner_steps", "wall_s")
FAULT_PREFIX = "faults/"
_EVENTS = "events.out.tfevents."
_MAIN_METRICS = ("test/return_mean", "train/return_mean")
# Configuration sections that are not hyperparameters.
_NOT_LEARNING = ("run", "logging", "ray", "checkpoint", "timeline", "trajectories")


class MetricsSink:
  """Appends ticks to metrics.jsonl and TensorBoard. Call `close`, or use it as a context manager.

  On a full disk, a write raises OSError. Its data stays pending as in `AppendFile`, and the next write starts
  with the pending data.
  """

  def __init__(
    self,
    metrics_path: Path,
    tensorboard_path: Path | None,
    keep: tuple[int, int, float] | None = None,
  ) -> None:
    """Opens the files. Keeps the ticks in metrics.jsonl, but removes an incomplete last line (after a kill).

    Args:
      metrics_path: path of metrics.jsonl.
      tensorboard_path: folder for TensorBoard events; None writes no events.
      keep: counters (env_steps, learner_steps, wall_s) from which a run is resumed. Later ticks are removed,
        and TensorBoard hides later events. None keeps all ticks.
    """
    if metrics_path.exists():
      size = sum(len(line) for line in read_lines(metrics_path) if line.endswith(b"\n"))
      os.truncate(metrics_path, size)
      if keep is not None:
        _drop_later(metrics_path, keep)
    self._file = AppendFile(metrics_path)
    purge_step = None if keep is None else keep[0] + 1
    self._tensorboard = None if tensorboard_path is None else _EventFile(tensorboard_path, purge_step)

  def write(self, *, env_steps: int, learner_steps: int, wall_s: float, scalars: Mapping[str, Any]) -> None:
    """Writes one tick: the counters, the run's wall time in seconds over all resumes, and scalars by name.

    A number that is not finite is written to metrics.jsonl as null.

    Raises: ValueError: a name is in TICK_KEYS, or a value is not one number. OSError: the tick is pending.
    """
    reserved = [name for name in scalars if name in TICK_KEYS]
    if reserved:
      raise ValueError(f"scalars: {reserved[0]!r} is a key of the tick itself")
    numbers = {name: _number(name, value) for name, value in scalars.items()}
    env_steps, learner_steps = int(env_steps), int(learner_steps)
    tick = {"env_steps": env_steps, "learner_steps": learner_steps, "wall_s": round(float(wall_s), 3)}
    line = json.dumps(to_plain_json(tick | numbers), allow_nan=False) + "\n"
    # The ExitStack writes to both files, even if one write fails.
    with contextlib.ExitStack() as both:
      if self._tensorboard is not None:
        shown = {f"system/{key}": tick[key] for key in ("learner_steps", "wall_s")}
        # Zero fault counts are left out: TensorBoard would show a dozen such curves before the losses.
        shown |= {tag: value for tag, value in numbers.items() if value or not tag.startswith(FAULT_PREFIX)}
        values = [{"tag": tag, "simple_value": float(value)} for tag, value in shown.items()]
        both.callback(self._tensorboard.write, values, env_steps)
      self._file.write(line.encode())

  def write_settings(self, config: Config) -> None:
    """Writes the settings to TensorBoard's HParams tab. Raises OSError; the settings are then pending."""
    from tensorboardX.summary import hparams

    if self._tensorboard is not None:
      # `hparams` returns summaries of the experiment, of the run's start and of its end. The end is left out.
      for summary in hparams(hyperparameters(config), dict.fromkeys(_MAIN_METRICS))[:2]:
        self._tensorboard.write_summary(summary)

  def write_histograms(self, histograms: Mapping[str, Histogram], env_steps: int) -> None:
    """Writes histograms by tag, to TensorBoard only. Raises OSError; the histograms are then pending."""
    values = []
    for tag, h in histograms.items():
      sums = {"num": h.counts.sum(), "sum": h.total, "sum_squares": h.total_of_squares}
      buckets = {"bucket_limit": h.edges[1:].tolist(), "bucket": h.counts.tolist()}
      values.append({"tag": tag, "histo": {"min": h.edges[0], "max": h.edges[-1]} | sums | buckets})
    if self._tensorboard is not None:
      self._tensorboard.write(values, int(env_steps))

  def write_text(self, tag: str, text: str, env_steps: int) -> None:
    """Writes a text to TensorBoard only. Raises OSError; the text is then pending."""
    from tensorboardX.summary import text as text_summary

    if self._tensorboard is not None:
      self._tensorboard.write_summary(text_summary(tag, text), int(env_steps))

  def write_gif(self, name: str, gif: bytes, size: tuple[int, int], env_steps: int) -> None:
    """Writes an encoded GIF of size (height, width) to TensorBoard's image tab.

    Raises: OSError: the disk is full; the GIF is pending.
    """
    # tensorboardX's add_video is not used: without the package moviepy, it drops the video silently.
    image = {"height": size[0], "width": size[1], "colorspace": 3, "encoded_image_string": gif}
    if self._tensorboard is not None:
      self._tensorboard.write([{"tag": name, "image": image}], int(env_steps))

  def sync(self) -> None:
    """Writes what is pending, and calls fsync on metrics.jsonl. Raises OSError if either fails."""
    with contextlib.ExitStack() as both:
      if self._tensorboard is not None:
        both.callback(self._tensorboard.flush)
      self._file.sync()

  def close(self) -> None:
    """Closes the files; a second call does nothing. Raises OSError if pending data is lost."""
    with contextlib.ExitStack() as both:
      if self._tensorboard is not None:
        both.callback(self._tensorboard.close)
      self._file.close()

  def __enter__(self) -> "MetricsSink":
    return self

  def __exit__(self, *_: object) -> None:
    self.close()


class _EventFile:
  """A TensorBoard event file, written in the calling thread.

  tensorboardX's own writer is not used: its thread ends without an error on a full disk, and later writes
  then block forever on its bounded queue.
  """

  def __init__(self, folder: Path, purge_step: int | None) -> None:
    """Creates the file; from `purge_step` on, TensorBoard hides the events of the folder's other files."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.record_writer import masked_crc32c

    self._event, self._crc = Event, masked_crc32c
    folder.mkdir(parents=True, exist_ok=True)
    # TensorBoard reads files in the order of their names, and hides events that a later file repeats. A clock
    # that went back must change neither order.
    self._now = max([time.time(), *_stamps(folder)])
    self._file = AppendFile(folder / f"{_EVENTS}{self._now:017.6f}.{socket.gethostname()}")
    self.close, self.flush = self._file.close, self._file.flush
    self._append(file_version="brain.Event:2")
    if purge_step is not None:
      self._append(step=purge_step, session_log=SessionLog(status=SessionLog.START))

  def write(self, values: list[dict[str, Any]], step: int) -> None:
    """Writes the values of a summary as one event."""
    self._append(step=step, summary={"value": values})

  def write_summary(self, summary: Any, step: int = 0) -> None:
    """Writes a summary as one event."""
    self._append(summary=summary, step=step)

  def _append(self, **event: Any) -> None:
    self._now = max(self._now, time.time())
    data = self._event(wall_time=self._now, **event).SerializeToString()
    length = struct.pack("<Q", len(data))
    crcs = [struct.pack("<I", self._crc(part)) for part in (length, data)]
    self._file.write(length + crcs[0] + data + crcs[1])


def _stamps(folder: Path) -> Iterator[float]:
  """Yields times in s that are later than the name and the last event of each event file in a folder."""
  for path in folder.glob(f"{_EVENTS}*"):
    with contextlib.suppress(OSError):
      yield path.lstat().st_mtime
    if found := re.match(r"\d{10}\.\d{6}", path.name.removeprefix(_EVENTS)):
      yield float(found[0]) + 1e-6


def hyperparameters(config: Config) -> dict[str, str | bool | float]:
  """Returns the settings for TensorBoard's HParams tab by dotted key, without nulls; lists are JSON text.

  The sections of files, of Ray and of other algorithms are left out, and so are the actors' resources.
  """
  unused = {"ppo", "q_learning"} - {config.algorithm}
  skipped = {*_NOT_LEARNING, *unused}
  if not config.searches:
    skipped |= {"network", "planners", "reanalyze"}
  out: dict[str, str | bool | float] = {}

  def add(key: str, value: Any) -> None:
    if isinstance(value, Mapping):
      for name, inner in value.items():
        if name != "resources":
          add(f"{key}.{name}" if key else name, inner)
    elif isinstance(value, str | bool | int | float):
      out[key] = value
    elif value is not None:
      out[key] = json.dumps(value)

  add("", {name: value for name, value in config.model_dump(mode="json").items() if name not in skipped})
  return out


def read_metrics(path: Path) -> list[dict[str, Any]]:
  """Reads the ticks of a metrics.jsonl in order; skips an incomplete last line.

  Raises: UserError: the file is missing or cannot be read, or another line is not a JSON object.
  """
  return list(read_json_lines(path, _tick))


def thin_ticks(ticks: Sequence[Mapping[str, Any]], max_ticks: int, digits: int) -> list[dict[str, Any]]:
  """Returns the ticks with an evaluation, and at most `max_ticks` of the others, among them the last.

  Fractions are rounded to `digits` significant digits, except those of evaluations and of TICK_KEYS.
  """

  def short(name: str, value: Any) -> Any:
    is_exact = name in TICK_KEYS or name.startswith("test/")
    is_fraction = isinstance(value, float) and not value.is_integer()
    return float(f"{value:.{digits}g}") if is_fraction and not is_exact else value

  others = [i for i, tick in enumerate(ticks) if "test/return_mean" not in tick]
  dropped = set(others) - set(others[::-1][:: max(1, -(-len(others) // max_ticks))])
  return [
    {name: short(name, value) for name, value in tick.items()}
    for i, tick in enumerate(ticks)
    if i not in dropped
  ]


def _tick(data: Any) -> dict[str, Any]:
  if not isinstance(data, dict):
    raise ValueError("not a JSON object")
  return data


def _number(name: str, value: Any) -> int | float:
  array = np.asarray(value)
  if array.size != 1 or array.dtype.kind not in "biuf":
    raise ValueError(f"scalars: {name!r} is {value!r}, not one number")
  item = array.reshape(()).item()
  return int(item) if isinstance(item, bool) else item


def _drop_later(path: Path, keep: tuple[int, int, float]) -> None:
  """Removes the ticks that are later than the counters `keep`."""
  kept = [
    line
    for line, tick in zip(read_lines(path), read_json_lines(path, _tick), strict=True)
    if all((number_in(tick.get(key)) or 0) <= limit for key, limit in zip(TICK_KEYS, keep, strict=True))
  ]
  write_bytes(path, b"".join(kept))
