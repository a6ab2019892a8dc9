"""Raises an error in the driver if Ray's scheduler (raylet) or control store (gcs_server) ends.

Only those of a local cluster are checked. Without the checks, Ray's core in C++ ends the driver some time
after one of them has ended, and the run has no last checkpoint.
"""

import time
from collections.abc import Sequence
from typing import Any

from moozi.core.errors import ProcessLostError

# Time between two checks while the driver waits.
_CHECK_S = 0.5
# Names of Ray's processes in Ray and in the message.
_SCHEDULER, _STORE = "raylet", "gcs_server"
_NAMES = {_SCHEDULER: "scheduler (raylet)", _STORE: "control store (gcs_server)"}


class WatchedRay:
  """The `ray` module, whose `get` and `wait` raise an error if Ray's scheduler or control store has ended.

  Args:
    ray: the connected `ray` module.
    node: Ray's record of the processes that it has started here; None if the cluster was joined, whose
      processes are not those of the run.
  """

  def __init__(self, ray: Any, node: Any) -> None:
    self._ray, self._node = ray, node
    self._is_store_lost = False

  def __getattr__(self, name: str) -> Any:
    return getattr(self._ray, name)

  def lost(self) -> str | None:
    """Returns the name in Ray of a needed process that has ended; None if there is none."""
    ended = [] if self._node is None else [name for name, _ in self._node.dead_processes()]
    return next((name for name in _NAMES if name in ended), None)

  def check(self) -> None:
    """Raises ProcessLostError if a process that the driver needs has ended.

    The actors answer for some time without the control store, so its end is raised once only: the driver can
    then take the last state. Without the scheduler, the actors end.
    """
    name = self.lost()
    if name is None or (name == _STORE and self._is_store_lost):
      return
    self._is_store_lost = name == _STORE
    raise self.error()

  def error(self) -> ProcessLostError:
    """Returns the error for the process that `lost` names."""
    return ProcessLostError(f"runtime=ray: Ray's {_NAMES[self.lost() or _STORE]} ended unexpectedly")

  def get(self, references: Any, timeout: float | None = None) -> Any:
    """Returns the results, as `ray.get` does. Raises ProcessLostError as `check`."""
    if waited := list(dict.fromkeys(references if isinstance(references, list) else [references])):
      self.wait(waited, num_returns=len(waited), timeout=timeout)
    # With a timeout, Ray raises its own error for a result that is missing now.
    return self._ray.get(references, timeout=None if timeout is None else 0)

  def wait(
    self, references: Sequence[Any], num_returns: int = 1, timeout: float | None = None
  ) -> tuple[list[Any], list[Any]]:
    """Waits for results, as `ray.wait` does. Raises ProcessLostError as `check`."""
    end_s = None if timeout is None else time.monotonic() + timeout
    while True:
      left_s = _CHECK_S if end_s is None else max(0.0, min(_CHECK_S, end_s - time.monotonic()))
      ready, pending = self._ray.wait(references, num_returns=num_returns, timeout=left_s)
      self.check()
      if len(ready) >= num_returns or (end_s is not None and time.monotonic() >= end_s):
        return ready, pending
