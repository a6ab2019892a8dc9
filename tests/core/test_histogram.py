"""Tests that histograms count each finite value once."""

import numpy as np
import pytest

from moozi.core.histogram import histogram_of


@pytest.mark.parametrize(
  "values",
  [
    np.random.default_rng(0).normal(size=(30, 20)).astype(np.float32),
    np.array([1.0, 2.0]),
    np.array([3.0]),
    np.full(7, -2.5),
    np.array([1.0, np.nextafter(1.0, 2.0)]),
    np.array([-1e38, 1e38]),
    np.array([np.nan, 1.0, np.inf, 2.0, -np.inf]),
  ],
)
def test_counts_finite_values_once(values):
  histogram = histogram_of(values)
  finite = values[np.isfinite(values)].astype(np.float64)
  assert histogram.counts.sum() == finite.size
  assert len(histogram.edges) == len(histogram.counts) + 1
  assert (histogram.edges[0], histogram.edges[-1]) == (finite.min(), finite.max())
  assert histogram.total == pytest.approx(finite.sum())


def test_by_hand():
  histogram = histogram_of([0, 0, 0, 1, 4])
  assert histogram.counts[0] == 3
  assert histogram.counts[10] == 1  # the 40 bins have width 0.1
  assert histogram.counts[-1] == 1
  assert (histogram.total, histogram.total_of_squares) == (5.0, 17.0)


def test_none_without_finite_values():
  assert histogram_of([]) is None
  assert histogram_of([np.nan, np.inf]) is None
