"""Tests of interquartile means and bootstrap intervals."""

import numpy as np
import pytest

from moozi.experiments.statistics import (
  aggregate_improvement,
  aggregate_iqm,
  bootstrap_interval,
  estimate,
  interquartile_mean,
)


@pytest.mark.parametrize(
  ("values", "expected"),
  [
    ([7.0], 7.0),
    ([1.0, 4.0], 2.5),
    ([5.0, 0.0, 1.0], (0.25 * 0.0 + 1.0 + 0.25 * 5.0) / 1.5),
    ([100.0, 1.0, 2.0, -50.0], 1.5),
    ([1.0, 2.0, 3.0, 4.0, 1000.0], (0.75 * 2.0 + 3.0 + 0.75 * 4.0) / 2.5),
    ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 70.0], 3.5),
  ],
)
def test_interquartile_mean(values, expected):
  assert interquartile_mean(values) == pytest.approx(expected)
  assert interquartile_mean([values, values[::-1]]).tolist() == pytest.approx([expected] * 2)
  columns = np.stack([values, values[::-1]], axis=-1)
  assert interquartile_mean(columns, axis=0).tolist() == pytest.approx([expected] * 2)


def test_interval_of_one_seed_is_over_episodes():
  found = estimate([np.repeat([0.0, 1.0], 50)])
  assert (found.num_seeds, found.num_episodes, found.mean) == (1, 100, 0.5)
  # The mean of 100 coin tosses has a standard error of 0.05, so the 95% interval is ± 0.098.
  assert found.low == pytest.approx(0.40, abs=0.01)
  assert found.high == pytest.approx(0.60, abs=0.01)


def test_seeds_are_resampled():
  """Within each seed all returns are equal, so all variance is between seeds."""
  found = estimate([np.zeros(100), np.full(30, 10.0)])
  assert (found.num_seeds, found.num_episodes) == (2, 130)
  assert (found.mean, found.low, found.high) == (5.0, 0.0, 10.0)
  same = estimate([np.full(5, 3.0)] * 4)
  assert (same.mean, same.low, same.high) == (3.0,) * 3


def test_interval_is_deterministic():
  returns = [np.random.default_rng(i).normal(size=20) for i in range(3)]
  assert estimate(returns) == estimate(returns)


@pytest.mark.parametrize("returns", [[], [[1.0], []], [[[1.0]]]])
def test_rejects_empty_returns(returns):
  with pytest.raises(ValueError, match="at least one seed"):
    estimate(returns)


def test_bootstrap_interval_resamples_curves_whole():
  values = np.stack([np.arange(5.0), np.arange(5.0) + 100.0])
  low, high = bootstrap_interval(values, np.mean)
  np.testing.assert_allclose(high - low, (high - low)[0])
  assert 0.0 <= low[0] < 2.0 < high[0] <= 4.0
  with pytest.raises(ValueError, match="at least 2 seeds"):
    bootstrap_interval(np.ones(1), np.mean)


def test_probability_of_improvement_counts_ties_half():
  found = aggregate_improvement([np.array([1.0, 2.0])], [np.array([1.0, 0.0])])
  assert found.value == 0.875
  assert 0.0 <= found.low <= 0.875 <= found.high <= 1.0
  assert aggregate_improvement([np.ones(3)], [np.ones(3)]).value == 0.5
  assert aggregate_improvement([np.ones(1)], [np.zeros(3)]).low is None


def test_interval_covers_the_mean():
  """For ten normally distributed seeds, the 95% interval of the percentile bootstrap is slightly narrow."""
  rng = np.random.default_rng(0)
  low, high = bootstrap_interval(rng.normal(size=(400, 10)), np.mean)
  assert 0.86 <= np.mean((low <= 0) & (high >= 0)) <= 0.97


def slow_iqm(values) -> float:
  """Returns the mean of the middle half of 4 copies of each value, which needs no fractional weights."""
  copies = sorted(float(x) for x in values for _ in range(4))
  return sum(copies[len(values) : 3 * len(values)]) / (2 * len(values))


def slow_share(first, second) -> float:
  pairs = [(x, y) for x in first for y in second]
  return sum(1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs) / len(pairs)


GAMES = ([1.0, 2.0, 3.5], [10.0, 11.0], [0.0, 0.5, 0.2, 0.1])
OTHERS = ([2.0, 2.5], [9.0, 10.5, 30.0], [0.2, 0.3])


def slow_interval(groups, statistic, draws=4000):
  """Returns the 2.5% and 97.5% percentiles of the statistic over seeds resampled within each game."""
  random = np.random.default_rng(7)
  drawn = [
    statistic([[group[i] for i in random.integers(len(group), size=len(group))] for group in groups])
    for _ in range(draws)
  ]
  return np.percentile(drawn, [2.5, 97.5])


def test_aggregate_iqm_is_that_of_a_slow_stratified_bootstrap():
  def iqm(games):
    return slow_iqm([x for game in games for x in game])

  found = aggregate_iqm([np.array(game) for game in GAMES])
  assert found.value == pytest.approx(iqm(GAMES))
  assert [found.low, found.high] == pytest.approx(slow_interval(GAMES, iqm), rel=0.05)


def test_aggregate_improvement_is_that_of_a_slow_stratified_bootstrap():
  def mean(games):
    shares = [slow_share(x, y) for x, y in zip(games[:3], games[3:], strict=True)]
    return sum(shares) / len(shares)

  found = aggregate_improvement([np.array(x) for x in GAMES], [np.array(x) for x in OTHERS])
  assert found.value == pytest.approx(mean([*GAMES, *OTHERS]))
  assert [found.low, found.high] == pytest.approx(slow_interval([*GAMES, *OTHERS], mean), abs=0.03)


def test_an_aggregate_of_one_seed_has_no_interval():
  found = aggregate_iqm([np.array([1.0]), np.array([3.0, 5.0])])
  assert (found.value, found.low, found.high) == (pytest.approx(3.0), None, None)


def test_aggregates_are_those_of_rliable():
  """The expected values are from rliable 1.2.0 with 5,000 resamples, for [seeds, games] of two agents."""
  random = np.random.default_rng(0)
  first, second = random.normal(1, 0.3, (4, 5)), random.normal(0.8, 0.3, (4, 5))
  iqm = aggregate_iqm(list(first.T))
  assert [iqm.value, iqm.low, iqm.high] == pytest.approx([0.947895, 0.8515, 1.0639], abs=0.01)
  better = aggregate_improvement(list(first.T), list(second.T))
  assert [better.value, better.low, better.high] == pytest.approx([0.6375, 0.45, 0.8], abs=0.02)
