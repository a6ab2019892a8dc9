"""Draws the GIFs of evaluations in a thread."""

import concurrent.futures
from pathlib import Path
from typing import Any, NamedTuple

from moozi.core.spec import EnvSpec
from moozi.io.metrics import MetricsSink
from moozi.io.sinks import SinkGuard
from moozi.vis.evaluation_gifs import tiles_path, write_episode_gif, write_tiles_gif


class Drawer:
  """Draws the episodes of an evaluation, one evaluation at a time, since its pictures are large.

  Args:
    folder: of the GIFs, which are named by their steps.
    spec: the environment's specification.
    guard: counts and logs failures to write.
    metrics: shows the GIFs in TensorBoard.
  """

  def __init__(self, folder: Path, spec: EnvSpec, guard: SinkGuard, metrics: MetricsSink) -> None:
    self._folder, self._spec, self._guard, self._metrics = folder, spec, guard, metrics
    self._threads = concurrent.futures.ThreadPoolExecutor(1, "gifs")
    self._drawing: list[_Gif] = []

  def draw(self, result: Any) -> None:
    """Waits for the previous evaluation and starts to draw this one.

    Args:
      result: an `EvaluationResult`; nothing is drawn without an episode or tiles.
    """
    self.collect()
    path = self._folder / f"step_{result.env_steps:09d}.gif"
    if result.episode is not None:
      size = self._threads.submit(write_episode_gif, path, result.episode, self._spec)
      self._drawing.append(_Gif("a GIF", "test/episode", path, result.env_steps, size))
    if result.tiles:
      path = tiles_path(path)
      size = self._threads.submit(write_tiles_gif, path, result.tiles, self._spec)
      self._drawing.append(_Gif("a GIF of tiles", "test/tiles", path, result.env_steps, size))

  def collect(self, is_waiting: bool = True) -> None:
    """Shows the GIFs that are drawn.

    Args:
      is_waiting: false leaves those in progress to a later call.
    """
    while self._drawing and (is_waiting or self._drawing[0].size.done()):
      gif = self._drawing.pop(0)
      with self._guard.writing(gif.what):
        size = gif.size.result()
        self._metrics.write_gif(gif.tag, gif.path.read_bytes(), size, gif.env_steps)

  def close(self) -> None:
    """Waits for the thread and ends it; a second call does nothing."""
    try:
      self.collect()
    finally:
      self._threads.shutdown()


class _Gif(NamedTuple):
  """A GIF in progress; `size` is its height and width when it is done."""

  what: str
  tag: str
  path: Path
  env_steps: int
  size: concurrent.futures.Future[tuple[int, int]]
