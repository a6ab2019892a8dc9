"""Statistics of returns over a few seeds, with 95% intervals.

Source: Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice"), the interquartile mean and
percentile bootstrap. Departures: `estimate` resamples episodes within each seed too, because an evaluation
has few episodes. The interquartile mean gives fractional weight to the values at the quartiles, so that with
three seeds the extremes weigh less than the median.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

CONFIDENCE = 0.95
MIN_SEEDS_FOR_INTERVAL = 2
_NUM_DRAWS = 10_000
_NUM_CURVE_DRAWS = 2_000

Statistic = Callable[..., Any]
"""A function that takes an array [..., S] and `axis=-1`, and returns an array [...]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
  """The mean return over seeds with its interval.

  With one seed the interval covers only the episodes, not the variance between runs.
  """

  num_seeds: int
  num_episodes: int
  mean: float
  low: float
  high: float


def estimate(returns: Sequence[ArrayLike]) -> Estimate:
  """Estimates the mean of returns, with its bootstrap interval over seeds and episodes.

  Args:
    returns: the returns of the episodes of each seed.

  Raises: ValueError: there are no seeds, or a seed has no episodes.
  """
  samples = [np.asarray(r, np.float64) for r in returns]
  if not samples or any(r.ndim != 1 or not r.size for r in samples):
    raise ValueError("returns: must have at least one seed, and at least one episode for each seed")
  means = np.array([r.mean() for r in samples])
  drawn = _resample_means(samples, np.random.default_rng(0)).mean(axis=-1)
  tail = 50.0 * (1.0 - CONFIDENCE)
  low, high = np.percentile(drawn, [tail, 100.0 - tail])
  return Estimate(
    num_seeds=len(samples),
    num_episodes=sum(r.size for r in samples),
    mean=float(means.mean()),
    low=float(low),
    high=float(high),
  )


def interquartile_mean(x: ArrayLike, axis: int = -1) -> Float[np.ndarray, "..."]:
  """Returns the mean of the middle half of the values along an axis.

  Values at the quartiles have fractional weight.
  """
  values = np.sort(np.moveaxis(np.asarray(x, np.float64), axis, -1), axis=-1)
  size = values.shape[-1]
  # Value i covers [i, i + 1] of [0, size]; the middle half is [size / 4, 3 size / 4].
  edges = np.clip(np.arange(size + 1), size / 4, 3 * size / 4)
  return values @ (np.diff(edges) / (size / 2))


def bootstrap_interval(
  values: Float[np.ndarray, "... S"], statistic: Statistic
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
  """Returns the percentile bootstrap interval (low, high) of a statistic over S seeds.

  A resample takes the same seeds at all leading indices, so that it consists of whole curves.

  Raises: ValueError: S is below 2.
  """
  if values.shape[-1] < MIN_SEEDS_FOR_INTERVAL:
    raise ValueError(f"values: an interval needs at least {MIN_SEEDS_FOR_INTERVAL} seeds")
  return _bootstrap((values,), statistic)


@dataclasses.dataclass(frozen=True)
class Aggregate:
  """A statistic of runs, with its interval over seeds; None as bounds if a group has one seed in a game."""

  value: float
  low: float | None
  high: float | None


def aggregate_iqm(scores: Sequence[Float[np.ndarray, " S"]]) -> Aggregate:
  """Returns the interquartile mean of all runs of G games, with its stratified bootstrap interval.

  The bootstrap resamples the seeds within each game.

  Args:
    scores: for each game, the normalized scores of its seeds.

  Source: Agarwal et al. 2021, section 4.2. Departures: games may have different numbers of seeds; those with
    more seeds have more weight.
  """

  def iqm(*games: np.ndarray, axis: int = -1) -> np.ndarray:
    return interquartile_mean(np.concatenate(games, axis=-1))

  return _aggregate(tuple(scores), iqm)


def aggregate_improvement(
  first: Sequence[Float[np.ndarray, " S"]], second: Sequence[Float[np.ndarray, " S2"]]
) -> Aggregate:
  """Returns the mean over games of the share of pairs of runs in which the run of `first` scores higher.

  A tie counts one half. This share estimates the probability of improvement.

  Args:
    first, second: for each game, the scores of its seeds.

  Source: Agarwal et al. 2021, section 4.3. Departures: none.
  """
  count = len(first)

  def mean(*games: np.ndarray, axis: int = -1) -> np.ndarray:
    pairs = zip(games[:count], games[count:], strict=True)
    return np.mean([_share_of_wins(x, y) for x, y in pairs], axis=0)

  return _aggregate((*first, *second), mean)


def _aggregate(samples: tuple[np.ndarray, ...], statistic: Callable[..., np.ndarray]) -> Aggregate:
  value = float(statistic(*samples))
  if min(map(len, samples)) < MIN_SEEDS_FOR_INTERVAL:
    return Aggregate(value, None, None)
  low, high = _bootstrap(samples, statistic)
  return Aggregate(value, float(low), float(high))


def _share_of_wins(x: Float[np.ndarray, "... S"], y: Float[np.ndarray, "... S2"]) -> np.ndarray:
  """Returns the share of pairs of seeds in which x is larger; a tie counts one half."""
  return ((1.0 + np.sign(x[..., :, None] - y[..., None, :])) / 2.0).mean(axis=(-2, -1))


def _bootstrap(
  samples: tuple[np.ndarray, ...], statistic: Callable[..., np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the percentile bootstrap interval of a statistic of samples whose last axis is resampled."""
  from scipy import stats

  found = stats.bootstrap(
    samples,
    statistic,
    axis=-1,
    vectorized=True,
    method="percentile",
    n_resamples=_NUM_CURVE_DRAWS,
    confidence_level=CONFIDENCE,
    rng=np.random.default_rng(0),
  ).confidence_interval
  return np.asarray(found.low), np.asarray(found.high)


def _resample_means(
  samples: Sequence[Float[np.ndarray, " E"]], random: np.random.Generator
) -> Float[np.ndarray, "draws S"]:
  """Resamples S seeds, and the episodes of each; returns the seeds' mean returns for each resample."""
  which = random.integers(len(samples), size=(_NUM_DRAWS, len(samples)))
  out = np.empty(which.shape)
  for index, sample in enumerate(samples):
    places = np.nonzero(which == index)
    episodes = random.integers(sample.size, size=(len(places[0]), sample.size))
    out[places] = sample[episodes].mean(axis=-1)
  return out
