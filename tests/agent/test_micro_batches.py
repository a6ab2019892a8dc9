"""Tests of computing a batch in micro-batches; tests/learning/test_devices.py compares whole updates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.micro_batches import in_micro_batches, whole, with_micro_batches
from moozi.core.errors import UserError
from tests.agent.tiny import linear_model

WIDTH, LAYERS, BATCH = 8, 6, 64


def layers(weights, x):
  for w in weights:
    x = jnp.tanh(x @ w)
  return x


def loss(weights, x, num):
  """Returns a loss that is not a mean over samples: each is divided by the batch's largest output."""
  out = layers(weights, x) if num == 1 else whole(in_micro_batches(lambda x: layers(weights, x), num, x))
  return jnp.mean(jnp.square(out)) / jnp.max(out)


def test_outputs_have_the_order_of_the_batch():
  found = in_micro_batches(lambda x, y: (x, {"sum": x + y}), 3, jnp.arange(6.0), jnp.full(6, 10.0))
  assert found[0].tolist() == [[0, 3], [1, 4], [2, 5]]
  assert whole(found)[0].tolist() == [0, 1, 2, 3, 4, 5]
  assert whole(found)[1]["sum"].tolist() == [10, 11, 12, 13, 14, 15]


def test_gradients_are_those_of_the_whole_batch_in_less_memory():
  random = np.random.default_rng(0)
  weights = random.normal(size=(LAYERS, WIDTH, WIDTH)).astype(np.float32)
  x = random.normal(size=(BATCH, WIDTH)).astype(np.float32)
  gradient = jax.jit(jax.grad(loss), static_argnums=2)
  compiled = [gradient.lower(weights, x, num).compile() for num in (1, 8)]
  one, eight = (run(weights, x) for run in compiled)
  np.testing.assert_allclose(eight, one, atol=1e-6 * np.abs(one).max())
  one_bytes, eight_bytes = (run.memory_analysis().temp_size_in_bytes for run in compiled)
  assert eight_bytes < 0.75 * one_bytes


def test_a_state_of_the_whole_batch_is_refused():
  model = with_micro_batches(linear_model(3), 2)
  params, net_state = model.init(jax.random.PRNGKey(0), jnp.zeros((4, 2, 2, 1)))
  with pytest.raises(UserError, match=r"^learner.accumulate=2: must be 1 with .* whose module calls has"):
    model.represent(params, net_state, jnp.zeros((4, 2, 2, 1)), True)
