"""Games in stored steps: their starts, lengths, returns and ends."""

import dataclasses
import itertools

import numpy as np
from jaxtyping import Bool, Float64

from moozi.core.records import TrajectorySample
from moozi.ops.signs import player_sign


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredGame:
  """One game, from one `is_first` to the next; a lost life does not end it.

  Attributes:
    start: index, in its lane, of its first step.
    length: number of actions taken.
    total_reward: undiscounted return, env units; with two players, player 0's return.
    end: "terminal", "truncated", or "unfinished" where its newest step is not a last step.
  """

  start: int
  length: int
  total_reward: float
  end: str


class GameCounter:
  """Finds the games in the steps of one lane. Steps are added in order, in parts of any length."""

  def __init__(self) -> None:
    self._open: StoredGame | None = None
    self._to_play = np.zeros(0, np.int32)

  def add(self, start: int, steps: TrajectorySample) -> list[StoredGame]:
    """Adds the lane's next steps [T, …], which start at index `start`; returns the games that they complete.

    A game is complete when the next one starts, as in `acting.lanes`.
    """
    before = self._to_play if self._to_play.size else steps.to_play[:1]
    mover = np.concatenate([before, steps.to_play[:-1]])
    self._to_play = steps.to_play[-1:]
    # The action on a last frame is discarded, and a first frame has no reward.
    reward = np.where(steps.is_first, 0.0, player_sign(mover, 0) * steps.last_reward.astype(np.float64))
    is_taken = ~steps.is_last
    edges = [0, *np.flatnonzero(steps.is_first).tolist(), len(is_taken)]
    ended: list[StoredGame] = []
    for i, (first, stop) in enumerate(itertools.pairwise(edges)):
      if i > 0 and self._open is not None:
        ended.append(self._open)
        self._open = None
      if stop > first:
        self._open = self._extend(start + first, steps, slice(first, stop), reward, is_taken)
    return ended

  def rest(self) -> StoredGame | None:
    """Returns the newest game, which is not complete yet; None before the first step."""
    return self._open

  def _extend(
    self,
    start: int,
    steps: TrajectorySample,
    span: slice,
    reward: Float64[np.ndarray, "T"],
    is_taken: Bool[np.ndarray, "T"],
  ) -> StoredGame:
    """Returns the open game, or a new game at `start`, with the steps in `span` added."""
    before = self._open or StoredGame(start=start, length=0, total_reward=0.0, end="unfinished")
    last = span.stop - 1
    end = "unfinished"
    if steps.is_last[last]:
      end = "truncated" if steps.is_truncated[last] else "terminal"
    return StoredGame(
      start=before.start,
      length=before.length + int(is_taken[span].sum()),
      total_reward=before.total_reward + float(reward[span].sum()),
      end=end,
    )
