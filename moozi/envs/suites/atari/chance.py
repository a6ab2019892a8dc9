"""What is left to chance in an Atari game: how many no-ops open it, and which actions stick.

ALE draws both from generators of its own, which it seeds only when it loads a ROM; that takes a tenth of a
second. Their streams are drawn here instead, number for number, so that an environment begins a game with a
fresh
seed at once, and still plays the same game as ale-py's vectorized environment with that seed.
"""

from collections.abc import Iterator

import numpy as np

MAX_SEED = 2**31 - 1
"""The largest seed that ALE takes."""

_WORDS = 2**32


class GameSeeds:
  """A fresh seed for each game, from one generator.

  Only seeds that begin a game with at least one no-op are given, where there are any no-ops at all.

  Args:
    seed: any non-negative integer.
    max_noops: the largest number of no-ops; 0 for none.
  """

  def __init__(self, seed: int, max_noops: int) -> None:
    self._random = np.random.default_rng(seed)
    self._max_noops = max_noops

  def draw(self) -> int:
    """The next game's seed, 0 to MAX_SEED."""
    while True:
      seed = int(self._random.integers(MAX_SEED + 1))
      if self._max_noops == 0 or GameChance(seed, self._max_noops, 0.0).num_noops() > 0:
        return seed


class GameChance:
  """The draws that follow from a game's seed, those of later games too if no fresh seed comes.

  Args:
    seed: 0 to MAX_SEED.
    max_noops: the largest number of no-ops.
    sticky_action_prob: chance that a frame repeats the action of the frame before.

  Source: the Mersenne Twister and the bounded integers of the C++ library that ale-py is built with on Linux
  (Matsumoto and Nishimura 1998; Lemire 2019). Departures: none that a test of 10⁴ seeds finds.
  """

  def __init__(self, seed: int, max_noops: int, sticky_action_prob: float) -> None:
    self._noops = np.random.RandomState(seed)
    self._max_noops = max_noops
    self._is_sticky = sticky_action_prob > 0
    # ALE keeps the probability as a float32, and compares with a float64 in [0, 1).
    self._threshold = float(np.float32(sticky_action_prob)) * _WORDS
    self._sticky = _words(seed)

  def num_noops(self) -> int:
    """How many no-ops begin the next game, 0 to max_noops."""
    if self._max_noops == 0:
      return 0
    word = int(self._noops.randint(_WORDS, dtype=np.uint32))
    return word * (self._max_noops + 1) // _WORDS

  def sticks(self) -> bool:
    """Whether the next frame repeats the action of the frame before it."""
    if not self._is_sticky:
      return False
    repeats = next(self._sticky) < self._threshold
    next(self._sticky)  # the second player's, who never moves
    return repeats


def _words(seed: int) -> Iterator[int]:
  """The generator's 32-bit words, drawn a block at a time."""
  random = np.random.RandomState(seed)
  while True:
    yield from random.randint(_WORDS, size=256, dtype=np.uint32).tolist()
