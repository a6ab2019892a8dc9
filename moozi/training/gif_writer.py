"""GIFs of evaluations, drawn in a thread beside the run."""

import concurrent.futures
from pathlib import Path
from typing import Any, NamedTuple

from moozi.core.spec import EnvSpec
from moozi.io.metrics import MetricsSink
from moozi.io.sinks import SinkGuard
from moozi.vis.evaluation_gifs import tiles_path, write_episode_gif, write_tiles_gif


class Drawer:
  """Draws what an evaluation looked like; one evaluation at a time, since its pictures are large.

  Args:
    folder: where the GIFs go, named by their steps.
    spec: the environment's facts.
    guard: told of disks that are full.
    metrics: shows them in TensorBoard.
  """

  def __init__(self, folder: Path, spec: EnvSpec, guard: SinkGuard, metrics: MetricsSink) -> None:
    self._folder, self._spec, self._guard, self._metrics = folder, spec, guard, metrics
    self._threads = concurrent.futures.ThreadPoolExecutor(1, "gifs")
    self._drawing: list[_Gif] = []

  def draw(self, result: Any) -> None:
    """Begins to draw; waits for the evaluation before.

    Args:
      result: an `EvaluationResult`; without an episode and without tiles there is nothing to draw.
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
    """Shows what was drawn.

    Args:
      is_waiting: false leaves what is not done for a later call.
    """
    while self._drawing and (is_waiting or self._drawing[0].size.done()):
      gif = self._drawing.pop(0)
      with self._guard.writing(gif.what):
        size = gif.size.result()
        self._metrics.write_gif(gif.tag, gif.path.read_bytes(), size, gif.env_steps)

  def close(self) -> None:
    """Ends the thread when its work is done; a second call does nothing."""
    try:
      self.collect()
    finally:
      self._threads.shutdown()


class _Gif(NamedTuple):
  """One that is being drawn: size is its height and width, when it is done."""

  what: str
  tag: str
  path: Path
  env_steps: int
  size: concurrent.futures.Future[tuple[int, int]]
