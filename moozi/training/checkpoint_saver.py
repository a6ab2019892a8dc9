"""Checkpoints, written in a thread beside the run; a full disk ends no run."""

import concurrent.futures
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moozi.core.flat_state import State, prefixed
from moozi.io.checkpoints import CheckpointStore
from moozi.io.sinks import SinkGuard
from moozi.run.events import StateReady

_log = logging.getLogger("moozi.driver")


class Saver:
  """Saves what StateReady brings; one at a time, since each is large.

  Args:
    store: where they go.
    guard: told of disks that are full.
    meta: what every manifest says.
    tell: shows a line to the user.
  """

  def __init__(
    self, store: CheckpointStore, guard: SinkGuard, meta: dict[str, Any], tell: Callable[[str], None]
  ) -> None:
    self._store, self._guard, self._meta, self._tell = store, guard, meta, tell
    self._threads = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
    self._saving: concurrent.futures.Future[Path] | None = None
    self._job: Callable[[], Path] | None = None
    self._note: str | None = None

  def save(self, event: StateReady, wall_s: float, recorder: State) -> None:
    """Begins to save; waits for the one before. The last one of a run is waited for.

    Args:
      event: the state.
      wall_s: seconds since the run's start.
      recorder: the running figures, flat.
    """
    self.collect()
    state, rest, generations, blocks = event.state, None, None, None
    if state.progress:
      rest = prefixed("progress", state.progress) | prefixed("recorder", recorder)
      for index, collector in enumerate(state.collectors):
        rest |= prefixed(f"collector/{index}", collector)
      if state.replay is not None:
        rest |= prefixed("replay", state.replay.head)
        generations, blocks = state.replay.generations, state.replay.blocks
    meta = self._meta | {"env_steps": event.env_steps, "learner_steps": event.learner_steps}
    self._job = functools.partial(
      self._store.save, state.training, meta, wall_s, rest, generations, blocks, is_best=event.is_best
    )
    self._note = f"last checkpoint at {event.env_steps:,} steps" if event.is_final else None
    self._saving = self._threads.submit(self._job)
    if event.is_final:
      self.collect()

  def collect(self, is_waiting: bool = True) -> None:
    """Tells of the save under way, once it is done.

    Args:
      is_waiting: false returns at once where it is not.
    """
    if self._saving is None or not (is_waiting or self._saving.done()):
      return
    saving, self._saving = self._saving, None
    with self._guard.writing("a checkpoint"):
      _log.info("checkpoint %s", saving.result().name)
      self._job = None
      if self._note is not None:
        self._tell(self._note)

  def retry(self) -> None:
    """Saves once more what found no room; there may be some by now."""
    self.collect()
    if self._job is not None:
      self._saving = self._threads.submit(self._job)
      self.collect()

  def close(self) -> None:
    """Ends the thread when its work is done; a second call does nothing."""
    try:
      self.collect()
    finally:
      self._threads.shutdown()
