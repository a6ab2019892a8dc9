"""Tests of normal policies against SciPy and hand-computed values."""

import jax
import numpy as np
import pytest
from scipy import stats

from moozi.core.factors import ActionPart, Intervals
from moozi.ops.gaussian import draw_gaussian, gaussian_entropy, gaussian_log_prob
from tests.fast_jit import fast_jit

PART = ActionPart(path=(), shape=(2,), dtype="float32", values=((-1.0, 1.0), (0.0, 0.5)))
INTERVALS = Intervals(parts=(PART,), names=("x", "y"))
DRAW = fast_jit(lambda rows, key, temperature: draw_gaussian(rows, key, temperature, INTERVALS))


def policies(seed: int, num: int = 20):
  """Returns random means, log standard deviations, and the rows of both."""
  random = np.random.default_rng(seed)
  mean, log_std = random.normal(size=(2, num, 2)).astype(np.float32)
  return mean, log_std, np.concatenate([mean, log_std], axis=-1)


def test_log_prob_and_entropy_are_sums_over_the_dimensions():
  mean, log_std, params = policies(0)
  action = np.random.default_rng(1).normal(size=mean.shape).astype(np.float32)
  normal = stats.norm(mean, np.exp(log_std))
  log_prob, entropy = fast_jit(gaussian_log_prob), fast_jit(gaussian_entropy)
  np.testing.assert_allclose(log_prob(params, action), normal.logpdf(action).sum(-1), rtol=1e-4)
  np.testing.assert_allclose(entropy(params), normal.entropy().sum(-1), rtol=1e-5)
  # A standard normal at 0, in one dimension: -log √(2π), and log √(2πe).
  np.testing.assert_allclose(log_prob(np.zeros((1, 2)), np.zeros((1, 1))), -0.918939, atol=1e-6)
  np.testing.assert_allclose(entropy(np.zeros((1, 2))), 1.418939, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_draws_have_the_mean_and_the_deviation(temperature):
  row = np.array([0.3, -2.0, 0.5, -1.0], np.float32)
  rows = np.tile(row, (20_000, 1))
  action, drawn, params = map(np.asarray, DRAW(rows, jax.random.PRNGKey(0), temperature))
  np.testing.assert_array_equal(params[0], row)
  # A density raised to the power 1/temperature is normal with the variance times the temperature.
  deviation = np.exp(row[2:]) * np.sqrt(temperature)
  np.testing.assert_allclose(drawn.mean(0), row[:2], atol=4 * deviation.max() / np.sqrt(20_000))
  np.testing.assert_allclose(drawn.std(0), deviation, rtol=0.03)
  np.testing.assert_array_equal(action, np.clip(drawn, [-1, 0], [1, 0.5]))
  assert (action[:, 1] == 0).mean() > 0.9  # the mean -2 is below the bound
  assert drawn.min() < -1


def test_temperature_0_takes_the_clipped_mean():
  row = np.array([[0.3, 7.0, 0.5, 200.0]], np.float32)  # exp(200) is inf
  action, drawn, _ = DRAW(row, jax.random.PRNGKey(0), 0.0)
  np.testing.assert_allclose(drawn, [[0.3, 7.0]])
  np.testing.assert_allclose(action, [[0.3, 0.5]])
  temperatures = np.array([0.0, 1.0], np.float32)
  both = np.asarray(DRAW(np.tile(row, (2, 1)), jax.random.PRNGKey(0), temperatures)[0])
  np.testing.assert_allclose(both[0], [0.3, 0.5])
  assert both[1, 0] != 0.3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_parameters_that_are_not_finite_are_standard_normal(bad):
  rows = np.array([[bad, 0.0, 0.0, 0.0], [0.9, 0.1, -9.0, -9.0]], np.float32)
  action, drawn, params = map(np.asarray, DRAW(rows, jax.random.PRNGKey(0), 1.0))
  assert np.isfinite(drawn).all()
  np.testing.assert_array_equal(params[0], 0)
  np.testing.assert_allclose(action[1], [0.9, 0.1], atol=1e-3)
