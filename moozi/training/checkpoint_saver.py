"""Writes checkpoints in a thread; a checkpoint that cannot be written does not stop training."""

import concurrent.futures
import dataclasses
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moozi.core.flat_state import Snapshot, State, prefixed
from moozi.io.checkpoints import CheckpointStore
from moozi.io.sinks import SinkGuard
from moozi.run.events import StateReady

_log = logging.getLogger("moozi.driver")
_SINK = "a checkpoint"


class Saver:
  """Saves the states of StateReady events one at a time, because each state is large.

  Args:
    meta: entries for the `meta` of every checkpoint.
    note: shows a line to the user.
  """

  def __init__(
    self, store: CheckpointStore, guard: SinkGuard, meta: dict[str, Any], note: Callable[[str], None]
  ) -> None:
    self._store, self._guard, self._meta, self._note = store, guard, meta, note
    self._threads = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
    self._saving: concurrent.futures.Future[Path] | None = None
    self._job: Callable[[], Path] | None = None
    self._best_job: Callable[[], Path] | None = None
    self._message: str | None = None
    self._last: str | None = None

  @property
  def unsaved(self) -> str | None:
    """Why the run's last checkpoint could not be written; None if it was written, or is still to be made."""
    if self._last is None or self._job is None or self._saving is not None:
      return None
    reason = self._guard.reasons[_SINK]
    return f"the last checkpoint, at {self._last} environment steps, cannot be written: {reason}"

  def save(self, event: StateReady, wall_s: float, recorder: State) -> None:
    """Waits for the previous save and starts the next. For a run's last state, waits for this save too."""
    self.collect()
    state, rest = event.state, None
    if state.progress:
      head = prefixed("progress", state.progress) | prefixed("recorder", recorder)
      for index, collector in enumerate(state.collectors):
        head |= prefixed(f"collector/{index}", collector)
      replay = state.replay or Snapshot(head={})
      rest = dataclasses.replace(replay, head=head | prefixed("replay", replay.head))
    meta = self._meta | {"env_steps": event.env_steps, "learner_steps": event.learner_steps}
    failed = self._job
    self._job = functools.partial(self._store.save, state.training, meta, wall_s, rest, event.best_bound)
    if event.is_best:
      self._best_job = self._job
      if self._last is not None and failed is not None:
        self._job = functools.partial(self._save_both, self._job, failed)
    elif self._best_job is not None:
      self._job = functools.partial(self._save_both, self._best_job, self._job)
    # The states after the final evaluation have the same steps.
    if event.is_final or self._last is not None:
      self._last = f"{event.env_steps:,}" if not event.is_best else self._last
    self._message = f"last checkpoint at {self._last} steps" if event.is_final else None
    self._saving = self._threads.submit(self._job)
    if event.is_final:
      self.collect()

  def collect(self, is_waiting: bool = True) -> None:
    """Waits for the current save and reports it. Without `is_waiting`, reports it only if it is done."""
    if self._saving is None or not (is_waiting or self._saving.done()):
      return
    saving, self._saving = self._saving, None
    with self._guard.writing(_SINK):
      _log.info("checkpoint %s", saving.result().name)
      self._job = self._best_job = None
      if self._message is not None:
        self._note(self._message)

  def _save_both(self, best: Callable[[], Path], job: Callable[[], Path]) -> Path:
    """Saves two states, of which one could not be saved before. If either fails, both are saved again."""
    path = job()
    best()
    return path

  def retry(self) -> None:
    """Repeats the last save if it failed; the disk may have space now."""
    self.collect()
    if self._job is not None:
      self._saving = self._threads.submit(self._job)
      self.collect()

  def close(self) -> None:
    """Waits for the thread and ends it; a second call does nothing."""
    try:
      self.collect()
    finally:
      self._threads.shutdown()
