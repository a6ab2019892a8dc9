"""Tests of running statistics against NumPy's mean and variance of all samples."""

import numpy as np
import pytest

from moozi.ops import running_stats
from moozi.ops.running_stats import EPSILON, initial_stats
from tests.fast_jit import fast_jit
from tests.run_events import assert_equal_trees

updated = fast_jit(running_stats.updated)
standardized = fast_jit(running_stats.standardized, static_argnums=2)


def batches(seed: int, offset: float = 0.0):
  """Returns batches of samples [N, 2, 3] with masks, of which one has no live sample."""
  random = np.random.default_rng(seed)
  out = []
  for size, share in ((1, 1.0), (7, 0.5), (4, 0.0), (64, 0.9), (5, 1.0)):
    x = (offset + random.normal(size=(size, 2, 3)) * [1, 5, 0.1]).astype(np.float32)
    out.append((x, random.random(size) < share))
  return out


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_statistics_equal_those_of_all_live_samples(offset):
  stats, seen = initial_stats((2, 3)), []
  for x, mask in batches(0, offset):
    stats = updated(stats, x, mask)
    seen.append(x[mask].astype(np.float64))
    live = np.concatenate(seen)
    assert stats.count == len(live)
    np.testing.assert_allclose(stats.mean, live.mean(axis=0), rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(stats.variance, live.var(axis=0), rtol=1e-2 if offset else 1e-4, atol=1e-6)


def test_samples_that_are_masked_change_nothing():
  stats, mask = updated(initial_stats((2,)), np.ones((3, 2), np.float32), np.ones(3, bool)), np.zeros(3, bool)
  assert_equal_trees(stats, updated(stats, np.full((3, 2), np.nan, np.float32), mask))


def test_entries_that_overflow_keep_their_statistics():
  x = np.array([[1.0, 0.0], [3.0, 2.0]], np.float32)
  stats = updated(initial_stats((2,)), x, np.ones(2, bool))
  stats = updated(stats, np.array([[1e30, 4.0]], np.float32), np.ones(1, bool))
  np.testing.assert_allclose(stats.mean, [2, 2])
  np.testing.assert_allclose(stats.variance, [1, np.var([0, 2, 4])], rtol=1e-6)


def test_standardized():
  x = np.array([[1.0, 0.0], [3.0, 2.0]], np.float32)
  stats = updated(initial_stats((2,)), x, np.ones(2, bool))
  y = np.array([[[4.0, 1.0], [-1e3, 1e30]]], np.float32)
  expected = [[[2 / np.sqrt(1 + EPSILON), 0.0], [-5.0, 5.0]]]
  np.testing.assert_allclose(standardized(y, stats, 5.0), expected, rtol=1e-6)
  np.testing.assert_array_equal(standardized(y, initial_stats((2,)), 5.0), [[[4, 1], [-5, 5]]])
