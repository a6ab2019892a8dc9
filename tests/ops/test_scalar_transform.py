import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.ops.scalar_transform import ScalarTransform, inverse_transform, transform

FINITE = st.floats(-3e4, 3e4, width=32)


def slow_transform(x: float, epsilon: float) -> float:
  return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + epsilon * x


@settings(max_examples=60)
@given(x=FINITE, epsilon=st.sampled_from([1e-3, 1e-2, 1e-5]))
def test_transform_equals_textbook_formula(x, epsilon):
  got = transform(np.float32(x)[None], epsilon)[0]
  assert got == pytest.approx(slow_transform(x, epsilon), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 1e-5])
def test_round_trip_in_float32(xp, epsilon):
  size = np.concatenate([np.logspace(-6, 4.4, 300), [0.0, 1.0, 0.5, 100.0]]).astype(np.float32)
  x = np.concatenate([size, -size])
  z = transform(xp.asarray(x), epsilon)
  back = np.asarray(inverse_transform(z, epsilon))
  assert z.dtype == np.float32
  assert back.dtype == np.float32
  np.testing.assert_allclose(back, x, rtol=3e-6, atol=1e-12)


def test_inverse_keeps_digits_that_the_textbook_loses():
  x = np.float32([1e-3, 0.01, 0.1])
  z = transform(x, 1e-3)
  one, eps = np.float32(1), np.float32(1e-3)
  q = (np.sqrt(one + 4 * eps * (np.abs(z) + one + eps)) - one) / (2 * eps)
  textbook = np.sign(z) * (q * q - one)
  assert np.max(np.abs(textbook / x - 1)) > 1e-3
  assert np.max(np.abs(inverse_transform(z, 1e-3) / x - 1)) < 1e-6


@pytest.mark.parametrize(
  ("z", "expected"),
  [
    (1.3, [0, 0, 0, 0.7, 0.3]),  # the example of the thesis
    (-1.25, [0.25, 0.75, 0, 0, 0]),
    (0.0, [0, 0, 1, 0, 0]),
    (2.0, [0, 0, 0, 0, 1]),
    (7.0, [0, 0, 0, 0, 1]),
    (-7.0, [1, 0, 0, 0, 0]),
  ],
)
@pytest.mark.parametrize("xp", [np, jnp])
def test_to_probs_table(xp, z, expected):
  phi = ScalarTransform(-2, 2, 1e-3)
  x = inverse_transform(np.float32(z)[None], 1e-3)
  np.testing.assert_allclose(phi.to_probs(xp.asarray(x))[0], expected, atol=1e-6)


@settings(max_examples=40)
@given(x=st.lists(st.floats(-800, 800, width=32), min_size=1, max_size=5))
def test_to_scalar_inverts_to_probs(x):
  phi = ScalarTransform()
  x = np.float32(x)
  probs = phi.to_probs(x)
  np.testing.assert_allclose(probs.sum(-1), 1.0, rtol=1e-5)
  assert np.all((probs > 0).sum(-1) <= 2)
  back = phi.to_scalar(np.log(np.maximum(probs, 1e-30)))
  np.testing.assert_allclose(back, x, rtol=1e-4, atol=1e-4)


def test_numpy_and_jax_agree_under_jit():
  phi = ScalarTransform(-10, 20, 0.01)
  x = np.linspace(-300, 600, 101, dtype=np.float32)
  logits = np.random.default_rng(0).normal(size=(7, phi.size)).astype(np.float32)
  np.testing.assert_allclose(jax.jit(phi.to_probs)(x), phi.to_probs(x), atol=1e-5)
  np.testing.assert_allclose(jax.jit(phi.to_scalar)(logits), phi.to_scalar(logits), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("low", "high"), [(-30, 30), (0, 10), (-5, 1)])
def test_zero_logits(low, high):
  phi = ScalarTransform(low, high, 1e-3)
  assert phi.size == high - low + 1
  assert phi.to_scalar(phi.zero_logits) == 0.0


def test_large_logits_do_not_overflow():
  logits = np.full((1, 61), -1e30, np.float32)
  logits[0, 31] = 1e30
  assert ScalarTransform().to_scalar(logits)[0] == pytest.approx(
    float(inverse_transform(np.float32([1.0]))[0])
  )


@pytest.mark.parametrize(("low", "high"), [(1, 5), (-5, -1), (0, 0)])
def test_rejects_support_without_zero(low, high):
  with pytest.raises(ValueError, match="support"):
    ScalarTransform(low, high)
