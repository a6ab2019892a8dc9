"""Actors of a run that wait in place of acting and learning, for benchmarks of everything else.

The driver, replay, the recorder and Ray are those of a run: `replaced` puts these classes into the table of
roles (`actors.roles`), from which the driver starts them.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from moozi.actors import roles
from moozi.actors.remote import process
from moozi.core.actor_report import SERVER, TESTING_WORKER, WORKER
from moozi.core.pytree import replace
from moozi.core.records import Priorities, TrajectorySample
from moozi.core.spec import DUMMY_ACTION
from moozi.replay.frame_rows import packed


@dataclasses.dataclass(frozen=True)
class CannedResult:
  """An `ActingResult`; the module of that class imports JAX, which these workers do not need."""

  num_steps: int
  version: int
  episode_returns: np.ndarray
  episode_lengths: np.ndarray
  metrics: dict[str, float]
  past: None = None


def closed_segment(segment: TrajectorySample) -> TrajectorySample:
  """Returns a segment [T, B, …] that can follow itself: its last steps truncate the episodes that continue.

  Raises: ValueError: a lane does not begin with a first step.
  """
  if not segment.is_first[0].all():
    raise ValueError("a closed segment must begin with first steps")
  is_cut = ~segment.is_last[-1]
  is_last, is_truncated, action = (
    np.array(x) for x in (segment.is_last, segment.is_truncated, segment.action)
  )
  is_last[-1] |= is_cut
  is_truncated[-1] |= is_cut
  action[-1, is_cut] = DUMMY_ACTION
  return replace(segment, is_last=is_last, is_truncated=is_truncated, action=action)


class CannedWorker(process.Actor):
  """A training worker that returns the same segment after a wait.

  Args:
    config, setup: as in `process.Actor`.
    segment: the segment, [T, B, …].
    wait_s: seconds of a call.
  """

  def __init__(
    self, config: Any, spec: Any, segment: TrajectorySample, wait_s: float, *, setup: process.Setup
  ) -> None:
    super().__init__(config, setup)
    self._segment, self._spec, self._wait_s = segment, spec, wait_s

  def warm_up(self) -> None:
    """Does nothing: there is nothing to compile."""

  def run(self, parameters: tuple[Any, int], env_steps: int) -> tuple[TrajectorySample, CannedResult]:
    """Waits, and returns the segment and the metrics of one segment."""
    with self._work.doing("segment"):
      time.sleep(self._wait_s)
    metrics = {f"search/{name}": 1.0 for name in range(11)}
    num_ended = int(self._segment.is_last.sum())
    returns, lengths = np.zeros(num_ended), np.ones(num_ended, np.int64)
    return packed(self._segment, self._spec), CannedResult(
      self._segment.is_last.size, parameters[1], returns, lengths, metrics
    )

  def reset(self) -> None:
    """Does nothing: each segment begins with first steps."""

  def close(self) -> None:
    """Does nothing: there are no environments."""


class CannedServer(process.Actor):
  """A parameter server that waits in place of updates, and publishes `num_bytes` of parameters.

  Args:
    config, setup: as in `process.Actor`.
    num_bytes: size of the parameters.
    wait_s: seconds of a call of `update`.
  """

  def __init__(self, config: Any, spec: Any, num_bytes: int, wait_s: float, *, setup: process.Setup) -> None:
    super().__init__(config, setup)
    self._variables, self._wait_s = np.zeros(num_bytes, np.uint8), wait_s
    self._updates_per_call, self._learner_step = config.learner.updates_per_call, 0

  def warm_up(self) -> None:
    """Does nothing: there is nothing to compile."""

  def update(self, discount: float, time_share: float, targets: Any) -> tuple[Priorities, dict[str, float]]:
    """Waits, and returns priorities and the metrics of one call."""
    with self._work.doing("update"):
      time.sleep(self._wait_s)
    self._learner_step += self._updates_per_call
    slot = targets.slot.reshape(-1)
    priorities = Priorities(
      slot=slot, sequence=targets.sequence.reshape(-1), delta=np.ones(slot.shape, np.float32)
    )
    return priorities, {f"loss/{name}": 1.0 for name in range(30)}

  def parameters(self, network: str) -> tuple[Any, int]:
    """Returns (the parameters, the learner step)."""
    with self._work.doing("publish"):
      return self._variables, self._learner_step

  def histograms(self) -> dict[str, Any]:
    """Returns no histograms."""
    return {}


class IdleTester(process.Actor):
  """A testing worker that is never called."""

  def __init__(self, config: Any, spec: Any, *, setup: process.Setup) -> None:
    super().__init__(config, setup)


@contextlib.contextmanager
def replaced(segment: TrajectorySample, act_s: float, learn_s: float, parameter_bytes: int) -> Iterator[None]:
  """Lets runs in this process start canned actors.

  Args:
    segment: what each worker returns; `closed_segment` makes it one that can follow itself.
    act_s, learn_s: seconds of a worker's call and of an update call.
    parameter_bytes: size of the parameters.
  """

  def started(role: str, make: type, *arguments: Any) -> roles.Role:
    start = roles.Start(arguments)
    return dataclasses.replace(roles.ROLES[role], make=make, start=lambda *_: start)

  canned = {
    WORKER: started(WORKER, CannedWorker, segment, act_s),
    SERVER: started(SERVER, CannedServer, parameter_bytes, learn_s),
    TESTING_WORKER: started(TESTING_WORKER, IdleTester),
  }
  with mock.patch.dict(roles.ROLES, canned):
    yield
