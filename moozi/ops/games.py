"""The games in stored steps: where they begin, their returns and lengths."""

import dataclasses
import itertools

import numpy as np

from moozi.core.records import TrajectorySample
from moozi.ops.players import player_sign


@dataclasses.dataclass(frozen=True, kw_only=True)
class Game:
  """One game, from one `is_first` to the next; a life lost does not end it.

  Attributes:
    start: index in its lane of its first step.
    length: actions taken.
    total_reward: its return, undiscounted, env units; with two players that of player 0.
    end: "terminal", "truncated", or "unfinished" where its newest step is no last one.
  """

  start: int
  length: int
  total_reward: float
  end: str


class GameCounter:
  """Counts the games of one lane out of its steps, given in order and in parts."""

  def __init__(self) -> None:
    self._open: Game | None = None
    self._to_play = np.zeros(0, np.int32)

  def add(self, start: int, steps: TrajectorySample) -> list[Game]:
    """Takes the lane's next steps [T, …], which begin at index `start`; the games that ended with them.

    A game is over when the next one begins, as `acting.collector` tells it.
    """
    before = self._to_play if self._to_play.size else steps.to_play[:1]
    mover = np.concatenate([before, steps.to_play[:-1]])
    self._to_play = steps.to_play[-1:]
    # What follows an end is no action of the agent's, and the reward on a first frame is none.
    reward = np.where(steps.is_first, 0.0, player_sign(mover, 0) * steps.last_reward.astype(np.float64))
    taken = ~steps.is_last
    begins = np.flatnonzero(steps.is_first)
    edges = [0, *begins.tolist(), len(taken)]
    ended: list[Game] = []
    for i, (first, stop) in enumerate(itertools.pairwise(edges)):
      if i > 0 and self._open is not None:
        ended.append(self._open)
        self._open = None
      if stop > first:
        self._open = self._extend(start + first, steps, slice(first, stop), reward, taken)
    return ended

  def rest(self) -> Game | None:
    """The game whose successor has not begun; None before the first step."""
    return self._open

  def _extend(
    self, start: int, steps: TrajectorySample, span: slice, reward: np.ndarray, taken: np.ndarray
  ) -> Game:
    """The open game, or a new one at `start`, with more steps."""
    before = self._open or Game(start=start, length=0, total_reward=0.0, end="unfinished")
    last = span.stop - 1
    end = "unfinished"
    if steps.is_last[last]:
      end = "truncated" if steps.is_truncated[last] else "terminal"
    return Game(
      start=before.start,
      length=before.length + int(taken[span].sum()),
      total_reward=before.total_reward + float(reward[span].sum()),
      end=end,
    )
