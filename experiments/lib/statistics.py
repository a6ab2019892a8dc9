"""Means and intervals of returns over a few seeds.

Source: Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice"), the interquartile mean and
percentile bootstrap. Departures: episodes are resampled within each seed, because an evaluation has few
episodes. The interquartile mean gives fractional weight to the seeds at its edges, and is therefore defined
for three seeds.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

MIN_SEEDS_FOR_IQM = 3
_NUM_DRAWS = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
  """A mean return with intervals, over seeds; the interquartile mean is None for fewer than three seeds.

  With one seed the interval covers only the episodes, not the variance between runs.
  """

  num_seeds: int
  num_episodes: int
  mean: float
  low: float
  high: float
  iqm: float | None = None
  iqm_low: float | None = None
  iqm_high: float | None = None


def estimate(returns: Sequence[ArrayLike], confidence: float = 0.95, seed: int = 0) -> Estimate:
  """Estimates the mean and interquartile mean of returns, with bootstrap intervals over seeds and episodes.

  Raises: ValueError: there are no seeds, or a seed has no episodes.
  """
  samples = [np.asarray(r, np.float64) for r in returns]
  if not samples or any(r.ndim != 1 or not r.size for r in samples):
    raise ValueError("returns: must have at least one seed, and at least one episode for each seed")
  means = np.array([r.mean() for r in samples])
  drawn = _resample_means(samples, np.random.default_rng(seed))
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


def interquartile_mean(x: ArrayLike) -> Float[np.ndarray, "..."]:
  """The mean of the middle half along the last axis; values at the edges have fractional weight."""
  values = np.sort(np.asarray(x, np.float64), axis=-1)
  size = values.shape[-1]
  # Value i covers [i, i + 1] of [0, size]; the middle half is [size / 4, 3 size / 4].
  edges = np.clip(np.arange(size + 1), size / 4, 3 * size / 4)
  return values @ (np.diff(edges) / (size / 2))


def _resample_means(
  samples: Sequence[Float[np.ndarray, " E"]], random: np.random.Generator
) -> Float[np.ndarray, "draws S"]:
  """Mean returns of S resampled seeds, each over its own resampled episodes."""
  which = random.integers(len(samples), size=(_NUM_DRAWS, len(samples)))
  out = np.empty(which.shape)
  for index, sample in enumerate(samples):
    places = np.nonzero(which == index)
    episodes = random.integers(sample.size, size=(len(places[0]), sample.size))
    out[places] = sample[episodes].mean(axis=-1)
  return out


def _interval(
  drawn: Float[np.ndarray, "draws S"], statistic: Callable[[np.ndarray], np.ndarray], confidence: float
) -> tuple[float, float]:
  tail = 50.0 * (1.0 - confidence)
  low, high = np.percentile(statistic(drawn), [tail, 100.0 - tail])
  return float(low), float(high)
