"""Notices actors that hang, and ends them. They are then restarted as after any other failure.

A process that is stopped, or in which one thread keeps Python's lock, answers no call, and Ray reports no
error. A long call is no sign of a hang: a function compiles at its first call. So actors with heartbeats also
answer a call that does nothing, in a thread of its own.
"""

import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Any

from moozi.actors import cluster
from moozi.core.actor_report import ActorId

# Time between two checks.
_PERIOD_S = 2.0
_log = logging.getLogger("moozi.driver")


@dataclasses.dataclass
class _Heartbeat:
  """What the driver knows of one actor; `actor_id` is Ray's, which a restart changes."""

  actor_id: str
  question: Any
  has_answered: bool = False
  silent_s: float = 0.0


class Heartbeats:
  """Checks whether actors have answered, and ends those that do not answer for too long.

  An actor that has not answered yet is not ended: it may wait for room, or start slowly.

  Args:
    ray: the connected `ray` module.
    timeout_s: maximum time without an answer.
  """

  def __init__(self, ray: Any, timeout_s: float) -> None:
    self._ray, self._timeout_s = ray, timeout_s
    self._checked_s = time.monotonic()
    self._heartbeats: dict[ActorId, _Heartbeat] = {}

  def check(self, handles: Mapping[ActorId, Any]) -> None:
    """Reads the answers of these actors, and ends those that hang, at most every two seconds."""
    passed_s = time.monotonic() - self._checked_s
    if passed_s < _PERIOD_S:
      return
    self._checked_s += passed_s
    for actor, handle in handles.items():
      found = self._heartbeats.get(actor)
      if found is None or found.actor_id != handle._actor_id.hex():
        self._heartbeats[actor] = _Heartbeat(handle._actor_id.hex(), _ask(handle))
        continue
      # After a longer time, the driver was busy or suspended, perhaps with the whole machine.
      found.silent_s += min(passed_s, 2 * _PERIOD_S)
      if self._ray.wait([found.question], timeout=0.0)[0]:
        self._take_answer(found)
        found.question = _ask(handle)
      if found.has_answered and found.silent_s > self._timeout_s:
        _log.warning(
          "%s has not answered for %.0f s, and is ended (ray.heartbeat_timeout_s=%g)",
          *(actor, found.silent_s, self._timeout_s),
        )
        del self._heartbeats[actor]
        self._ray.kill(handle)

  def _take_answer(self, found: _Heartbeat) -> None:
    try:
      self._ray.get(found.question)
    except cluster.lost_errors(self._ray):
      return  # the connection was lost, or the actor, whose other calls then fail too
    found.has_answered, found.silent_s = True, 0.0


def _ask(handle: Any) -> Any:
  return handle.__ray_ready__.options(concurrency_group=cluster.HEARTBEAT).remote()
