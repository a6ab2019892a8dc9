"""The ledger of an on-policy run: the segments of the present round, and the steps of complete rounds."""

import enum
from typing import Any

from moozi.actors.ledger import RunLedger
from moozi.core.config import Config
from moozi.core.flat_state import State
from moozi.replay.validation import Refusals
from moozi.run.on_policy import OnPolicyParts, Part
from moozi.run.state import RunState


class Phase(enum.Enum):
  """What an on-policy run does: it is between rounds, waits for parameters, acts, or learns."""

  IDLE = enum.auto()
  PUBLISHING = enum.auto()
  ACTING = enum.auto()
  LEARNING = enum.auto()


class RoundLedger(RunLedger):
  """Counters of an on-policy run, and the segments of its present round.

  Steps count when the round has the segments of all workers. A segment that is lost is requested again.

  Args:
    config, state: as in `RunLedger`.
    parts: the algorithm.

  Attributes:
    phase: what the run does.
    in_flight: indices of the training workers whose segment is requested.
    refusals: consecutive refused segments of each worker.
    The others are as in `RunLedger`.
  """

  def __init__(self, config: Config, state: RunState | None, parts: OnPolicyParts) -> None:
    super().__init__(config, state)
    self._env_steps = 0 if state is None else state.env_steps
    self._num_workers, self._num_epochs = parts.num_workers(config), parts.num_epochs(config)
    self.phase = Phase.IDLE
    self.in_flight: set[int] = set()
    self.refusals = Refusals(config.replay.max_refused_segments)
    # By worker, a reference to the Rollout and the Part of its segment.
    self._collected: dict[int, tuple[Any, Part]] = {}
    self._acting_epoch = 0

  @property
  def env_steps(self) -> int:
    return self._env_steps

  @property
  def sample_reuse(self) -> float:
    return float(self._num_epochs)

  @property
  def next_free_version(self) -> int:
    # Parameters are published between rounds only, so no worker has seen a learner step that is not reported.
    return self.learner_steps + 1

  @property
  def round_steps(self) -> int:
    """Number of environment steps of a round."""
    return self._num_workers * self.segment_steps

  @property
  def num_collected(self) -> int:
    """Number of segments of the present round that have arrived."""
    return len(self._collected)

  @property
  def missing(self) -> list[int]:
    """Indices of the workers whose segment of the present round has not arrived and is not in flight."""
    return [i for i in range(self._num_workers) if i not in self._collected and i not in self.in_flight]

  def begin_acting(self) -> None:
    """Begins to collect a round with the parameters that were just published."""
    self.phase, self._acting_epoch = Phase.ACTING, self.parameter_epoch

  def begin_segment(self, index: int) -> None:
    """Counts a requested segment of training worker `index`."""
    self.in_flight.add(index)

  def lose_segment(self, index: int) -> None:
    """Counts the requested segment of a worker as lost."""
    self.in_flight.remove(index)

  def add_segment(self, index: int, rollout: Any, part: Part) -> bool:
    """Adds a worker's segment; returns whether the round has the segments of all workers."""
    self.in_flight.remove(index)
    self._collected[index] = rollout, part
    return len(self._collected) == self._num_workers

  def take_round(self) -> tuple[list[Any], list[Part]]:
    """Empties the round; returns references to its Rollouts, and its Parts, both in the order of workers.

    The caller counts the steps of each Part with `count_steps`.
    """
    segments = [self._collected[i] for i in range(self._num_workers)]
    self._collected.clear()
    self.phase = Phase.IDLE
    return [rollout for rollout, _ in segments], [part for _, part in segments]

  def count_steps(self, num_steps: int) -> None:
    """Counts the environment steps of a segment of a complete round."""
    self._env_steps += num_steps

  @property
  def has_acted_with_lost_parameters(self) -> bool:
    """Whether older parameters were restored after the round began, so that its segments are off-policy."""
    return self._acting_epoch != self.parameter_epoch

  def drop_round(self) -> int:
    """Empties an incomplete round; returns the number of segments that it had."""
    num_dropped = len(self._collected)
    self._collected.clear()
    self.phase = Phase.IDLE
    return num_dropped

  def is_complete(self, has_calls: bool) -> bool:
    return self._env_steps >= self.config.max_env_steps

  def get_state(self) -> State:
    return {"env_steps": self._env_steps}
