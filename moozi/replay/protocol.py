"""The interface of replay, which the local loop, the replay actor and Q-learning use. Imports no JAX."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, Num

from moozi.core.config.reanalyze import ReanalyzeConfig
from moozi.core.flat_state import Snapshot
from moozi.core.histogram import Histogram
from moozi.core.records import NStepTransition, RootSpan, SearchRoots, TrainTarget, TrajectorySample
from moozi.replay.validation import AddResult


class Supply(NamedTuple):
  """What a part of replay can give to a batch.

  Attributes:
    num_steps: number of stored steps.
    num_drawable: number of steps that can be drawn.
    mass: sum of the weights of these steps. Shards are drawn from in proportion to their masses.
  """

  num_steps: int
  num_drawable: int
  mass: float


def total(supplies: Sequence[Supply]) -> Supply:
  """Returns the supply of several parts together."""
  num_steps, num_drawable, mass = zip(*supplies, strict=True)
  return Supply(sum(num_steps), sum(num_drawable), sum(mass))


@runtime_checkable
class ReplayPart(Protocol):
  """Stored steps, from which training targets are drawn and whose positions are searched again.

  A step is identified by its slot and its sequence number. A composite numbers the slots of each part after
  those of the part before it.
  """

  @property
  def num_slots(self) -> int:
    """Number of steps for which there is memory."""

  @property
  def num_steps(self) -> int:
    """Number of stored steps."""

  def can_sample(self, batch_size: int) -> bool:
    """Returns whether a batch may be drawn.

    If the batch has steps of the run itself, replay must hold at least `min_steps_to_learn` of them, and as
    many eligible ones as the batch has.
    """

  def supply(self) -> Supply:
    """Returns the number of steps and the mass from which the next draw is made."""

  def set_discount(self, discount: float) -> None:
    """Sets the γ of the targets and of δ.

    If it changes, the δ of all eligible steps are computed again from their search values, as at insertion.
    """

  def sample_many(self, num_batches: int, batch_size: int) -> TrainTarget:
    """Draws U batches at once, with replacement, and returns a TrainTarget [U, B, ...].

    Importance ratios use the probabilities at the time of the draw. With `replay.normalize_importance`, they
    are normalized within each batch.

    Raises: ValueError: no step is eligible.
    """

  def transitions(self, slot: Int[np.ndarray, "M"]) -> NStepTransition:
    """Returns the n-step transitions of steps, from which Q-learning makes its targets."""

  def update_priorities(
    self, slot: Int[np.ndarray, "*M"], sequence: Int[np.ndarray, "*M"], delta: Num[np.ndarray, "*M"]
  ) -> int:
    """Sets new δ of drawn steps, and returns how many were applied.

    Ignores steps that were overwritten or are no longer eligible, and δ that are not finite. If a step occurs
    more than once, its last δ counts.
    """

  def positions(self, config: ReanalyzeConfig, version: int) -> SearchRoots | list[RootSpan]:
    """Chooses up to `config.batch_size` positions to search with the parameters `version`.

    Returns: SearchRoots if `config.mode` is "gather", else a list of RootSpan. It is empty if no position can
      be searched, or all were searched with newer parameters.
    """

  def write_back(
    self,
    slot: Int[np.ndarray, "M"],
    sequence: Int[np.ndarray, "M"],
    root_value: Float[np.ndarray, "M"],
    action_probs: Float[np.ndarray, "M A"],
    searched_version: Num[np.ndarray, "M"] | int,
  ) -> int:
    """Stores new search values and policies of steps, and returns how many were applied.

    Ignores steps that were overwritten, and steps whose stored search used newer parameters. Terminal frames
    keep value 0 and the dummy policy. Recomputes the priorities of the changed steps, and of the steps that
    bootstrap from them.

    Raises: ValueError: a value or a policy is not finite.
    """

  def stats(self) -> dict[str, float]:
    """Returns metrics: sizes, δ of up to 4096 eligible steps of each buffer, and counts of the whole run."""

  def histograms(self) -> dict[str, Histogram]:
    """Returns histograms of δ, and of the draw probability in multiples of 1/N; empty if N = 0.

    N is the number of eligible steps; up to 4096 of them, in each buffer, are counted.
    """

  def snapshot(self, known: Int[np.ndarray, "N"] | None = None) -> Snapshot:
    """Returns a copy of the state, without the blocks that the caller already has.

    Args:
      known: the generation of each block that the caller has; None if it has none.
    """

  def restore(self, snapshot: Snapshot) -> int:
    """Restores a snapshot into replay that has no steps, except those of stored trajectories.

    Replay with the same lanes, capacity, sampling and window is restored bit for bit, except that priorities
    are computed again if their settings have changed. In any other replay, the steps are appended lane by
    lane, with new priorities. Stored trajectories may be added before or after.

    Returns: number of steps of the snapshot that were not restored.
    Raises: ValueError: a block is missing, or has arrays that do not fit the environment.
    """


@runtime_checkable
class Replay(ReplayPart, Protocol):
  """A ReplayPart to which workers add steps.

  Lanes are numbered over all workers: worker w with B environments adds to lanes w*B … w*B+B-1.
  """

  def add(self, segment: TrajectorySample, first_lane: int) -> None:
    """Appends a segment [T, B, ...] to lanes first_lane … first_lane+B-1.

    Raises: ValueError: there are no such lanes, or the segment breaks a convention of the records or has more
      steps than a lane can store.
    """

  def add_or_refuse(
    self, segment: TrajectorySample, first_lane: int, num_lanes: int, num_steps: int
  ) -> AddResult:
    """Adds a worker's segment, or refuses the whole segment if it is invalid.

    A refused segment does not change the stored steps, but leaves a gap in its lanes. No history, return or
    unroll may cross the gap. Each lane therefore drops steps until its environment starts an episode (the
    caller resets the worker's environments). The episode before the gap is truncated, as after a restart of
    the worker.

    Args:
      segment: the segment [T, B, ...] of one worker.
      first_lane: the worker's first lane.
      num_lanes: the worker's number of lanes, B.
      num_steps: number of environment steps that the worker took for the segment; they count as lost if the
        segment is refused.

    Returns: the number of lost steps, and the reason if the segment was refused.
    Raises:
      ValueError: there are no such lanes.
      SegmentError: `replay.max_refused_segments` consecutive segments of the worker were refused.
    """

  def await_first(self, first_lane: int, num_lanes: int) -> None:
    """Marks a gap in these lanes, as a refused segment does: each drops steps until an episode starts.

    Raises: ValueError: there are no such lanes.
    """
