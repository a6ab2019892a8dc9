"""TensorBoard's event file, written in the calling thread.

tensorboardX's own writer has a thread behind a short queue. A full disk ends that thread, in silence, and
then whoever has something to write waits for the queue for ever.
"""

import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moozi.core.histogram import Histogram
from moozi.io.append_file import AppendFile


class TensorBoardFile:
  """An event file of its own in a folder; errors and full disks as `AppendFile` has them."""

  def __init__(self, folder: Path, purge_step: int | None = None) -> None:
    """Makes the file.

    Args:
      folder: made where it is not there.
      purge_step: TensorBoard shows no event of the folder's other files from this step on.

    Raises: OSError: it cannot be made.
    """
    from tensorboardX.proto import event_pb2, summary_pb2
    from tensorboardX.record_writer import masked_crc32c

    self._event: Any = event_pb2.Event
    self._summary: Any = summary_pb2.Summary
    self._histogram: Any = summary_pb2.HistogramProto
    self._crc = masked_crc32c
    folder.mkdir(parents=True, exist_ok=True)
    self._file = AppendFile(folder / f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}")
    self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))
    if purge_step is not None:
      start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
      self._write(self._event(wall_time=time.time(), step=purge_step, session_log=start))

  def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
    """Writes numbers by tag, as one event at `step`. Raises OSError: it waits to be written."""
    values = [self._summary.Value(tag=tag, simple_value=float(value)) for tag, value in scalars.items()]
    self._write_values(values, step)

  def write_histograms(self, histograms: Mapping[str, Histogram], step: int) -> None:
    """Writes histograms by tag, as one event at `step`. Raises OSError: it waits to be written."""
    values = [
      self._summary.Value(
        tag=tag,
        histo=self._histogram(
          min=h.edges[0],
          max=h.edges[-1],
          num=h.counts.sum(),
          sum=h.total,
          sum_squares=h.total_of_squares,
          bucket_limit=h.edges[1:].tolist(),
          bucket=h.counts.tolist(),
        ),
      )
      for tag, h in histograms.items()
    ]
    self._write_values(values, step)

  def write_gif(self, tag: str, gif: bytes, size: tuple[int, int], step: int) -> None:
    """Writes an encoded GIF of (height, width) pixels for the image tab. Raises OSError: it waits."""
    image = self._summary.Image(height=size[0], width=size[1], colorspace=3, encoded_image_string=gif)
    self._write_values([self._summary.Value(tag=tag, image=image)], step)

  def close(self) -> None:
    """Closes the file; a second call does nothing. Raises OSError: what waited is lost."""
    self._file.close()

  def _write_values(self, values: list[Any], step: int) -> None:
    self._write(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))

  def _write(self, event: Any) -> None:
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    parts = (length, struct.pack("<I", self._crc(length)), data, struct.pack("<I", self._crc(data)))
    self._file.write(b"".join(parts))
