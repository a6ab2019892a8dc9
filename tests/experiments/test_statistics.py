"""Interquartile means and bootstrap intervals, held against what can be said by hand."""

import numpy as np
import pytest

from experiments.lib.statistics import estimate, interquartile_mean


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
def test_the_interquartile_mean_is_that_of_the_middle_half(values, expected):
  assert interquartile_mean(values) == pytest.approx(expected)
  assert interquartile_mean([values, values[::-1]]).tolist() == pytest.approx([expected] * 2)


def test_one_seeds_interval_is_that_of_its_episodes():
  told = estimate([np.repeat([0.0, 1.0], 50)])
  assert (told.num_seeds, told.num_episodes, told.mean, told.iqm) == (1, 100, 0.5, None)
  # Half a deviation of a coin over the root of a hundred tosses is 0.05: 95% lie within 0.098.
  assert told.low == pytest.approx(0.40, abs=0.01)
  assert told.high == pytest.approx(0.60, abs=0.01)


def test_seeds_are_drawn_again_and_not_their_episodes_alone():
  """Each seed is certain of itself: all there is comes from which seeds are drawn."""
  told = estimate([np.zeros(100), np.full(30, 10.0)])
  assert (told.num_seeds, told.num_episodes) == (2, 130)
  assert (told.mean, told.low, told.high) == (5.0, 0.0, 10.0), "each seed counts alike, whatever its episodes"
  same = estimate([np.full(5, 3.0)] * 4)
  assert (same.mean, same.low, same.high, same.iqm, same.iqm_low, same.iqm_high) == (3.0,) * 6


def test_an_outlier_moves_the_mean_and_not_the_interquartile_mean():
  told = estimate([np.array([x, x]) for x in (*range(1, 20), 10_000)])
  assert told.mean == pytest.approx((190 + 10_000) / 20)
  assert told.iqm == pytest.approx(10.5)
  assert 5 < told.iqm_low < 10.5 < told.iqm_high < 16
  assert told.high > 1000


def test_the_same_returns_give_the_same_interval():
  returns = [np.random.default_rng(i).normal(size=20) for i in range(3)]
  assert estimate(returns) == estimate(returns)
  assert estimate(returns, confidence=0.5).low > estimate(returns).low


@pytest.mark.parametrize("returns", [[], [[1.0], []], [[[1.0]]]])
def test_what_is_no_evaluation_is_refused(returns):
  with pytest.raises(ValueError, match="at least one seed"):
    estimate(returns)
