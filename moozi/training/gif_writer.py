"""Draws the GIFs of evaluations in a background thread."""

import concurrent.futures
from pathlib import Path
from typing import Any

from moozi.core.spec import EnvSpec
from moozi.io.metrics import MetricsSink
from moozi.io.sinks import SinkGuard
from moozi.vis.evaluation_gifs import tiles_path, write_episode, write_tiles


class Drawer:
  """Draws the episodes of an evaluation, one evaluation at a time, because the pictures are large.

  The GIFs are written to files in a folder, named by environment steps, and to TensorBoard.
  """

  def __init__(self, folder: Path, spec: EnvSpec, guard: SinkGuard, metrics: MetricsSink) -> None:
    self._folder, self._spec, self._guard, self._metrics = folder, spec, guard, metrics
    self._threads = concurrent.futures.ThreadPoolExecutor(1, "gifs")
    # (name in messages, tag, path, steps, size); the future of the size completes when the GIF is written.
    self._drawing: list[tuple[str, str, Path, int, concurrent.futures.Future[tuple[int, int]]]] = []

  def draw(self, result: Any) -> None:
    """Waits for the previous evaluation and starts to draw the episode and tiles of an `EvaluationResult`."""
    self.collect()
    path, steps = self._folder / f"step_{result.env_steps:09d}.gif", result.env_steps
    if result.episode is not None:
      size = self._threads.submit(write_episode, path, result.episode, self._spec)
      self._drawing.append(("a GIF", "test/episode", path, steps, size))
    if result.tiles:
      path = tiles_path(path)
      size = self._threads.submit(write_tiles, path, result.tiles, self._spec)
      self._drawing.append(("a GIF of tiles", "test/tiles", path, steps, size))

  def collect(self, is_waiting: bool = True) -> None:
    """Writes the drawn GIFs to TensorBoard. Without `is_waiting`, leaves GIFs in progress to a later call."""
    while self._drawing and (is_waiting or self._drawing[0][-1].done()):
      name, tag, path, env_steps, size = self._drawing.pop(0)
      with self._guard.writing(name, Exception):  # a run does not end because of a picture
        height, width = size.result()
        self._metrics.write_gif(tag, path.read_bytes(), (height, width), env_steps)

  def close(self) -> None:
    """Waits for the thread and ends it; a second call does nothing."""
    try:
      self.collect()
    finally:
      self._threads.shutdown()
