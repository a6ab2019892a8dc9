"""Figures with their uncertainty, from the returns of a few seeds' evaluation episodes.

Source: Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice"): the interquartile mean and
percentile bootstrap. Departures: episodes are drawn again within each seed, since an evaluation has few; the
interquartile mean weighs the seeds at the quarters by their share, so that it means something for three.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any

MIN_SEEDS_FOR_IQM = 3
_NUM_DRAWS = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
  """A figure over seeds and episodes.

  Attributes:
    num_seeds, num_episodes: what it comes from, episodes of all seeds together.
    mean: over seeds, of each seed's mean return.
    low, high: of the mean, 95%. With one seed they tell of its episodes alone, not of how training varies.
    iqm, iqm_low, iqm_high: the interquartile mean over seeds; None with fewer than three.
  """

  num_seeds: int
  num_episodes: int
  mean: float
  low: float
  high: float
  iqm: float | None = None
  iqm_low: float | None = None
  iqm_high: float | None = None


def estimate(returns: Sequence[Array], confidence: float = 0.95, seed: int = 0) -> Estimate:
  """Mean and interquartile mean of some seeds' returns, with bootstrap intervals.

  Args:
    returns: [E] float of each seed; their numbers of episodes may differ.
    confidence: of the intervals.
    seed: of the bootstrap's draws.
  Raises: ValueError: there is no seed, or one without episodes.
  """
  samples = [np.asarray(r, np.float64) for r in returns]
  if not samples or any(r.ndim != 1 or not r.size for r in samples):
    raise ValueError("returns: at least one seed, and of each at least one episode, are needed")
  means = np.array([r.mean() for r in samples])
  drawn = _draw_means(samples, np.random.default_rng(seed))
  low, high = _interval(drawn, lambda x: x.mean(axis=-1), confidence)
  out = Estimate(
    num_seeds=len(samples),
    num_episodes=sum(r.size for r in samples),
    mean=float(means.mean()),
    low=low,
    high=high,
  )
  if len(samples) < MIN_SEEDS_FOR_IQM:
    return out
  low, high = _interval(drawn, interquartile_mean, confidence)
  return dataclasses.replace(out, iqm=float(interquartile_mean(means)), iqm_low=low, iqm_high=high)


def interquartile_mean(x: Array) -> Array:
  """The mean of the middle half along the last axis; a value that a quarter ends in counts by its share."""
  x = np.sort(np.asarray(x, np.float64), axis=-1)
  size = x.shape[-1]
  # Value i covers [i, i + 1] of [0, size]; the middle half is [size / 4, 3 size / 4].
  edges = np.clip(np.arange(size + 1), size / 4, 3 * size / 4)
  return x @ (np.diff(edges) / (size / 2))


def _draw_means(samples: Sequence[Array], random: np.random.Generator) -> Array:
  """[draws, S] means of S seeds drawn again, each over its own episodes drawn again."""
  num_seeds = len(samples)
  which = random.integers(num_seeds, size=(_NUM_DRAWS, num_seeds))
  out = np.empty(which.shape)
  for index, sample in enumerate(samples):
    places = np.nonzero(which == index)
    episodes = random.integers(sample.size, size=(len(places[0]), sample.size))
    out[places] = sample[episodes].mean(axis=-1)
  return out


def _interval(drawn: Array, statistic: Callable[[Array], Array], confidence: float) -> tuple[float, float]:
  tail = 50.0 * (1.0 - confidence)
  low, high = np.percentile(statistic(drawn), [tail, 100.0 - tail])
  return float(low), float(high)
