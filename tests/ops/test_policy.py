"""Tests of policies as logits; `tests/baselines/ppo/test_actor_critic.py` tests the choice of actions."""

import jax
import jax.numpy as jnp
import numpy as np

from moozi.ops.policy import masked_log_probs


def test_masked_log_probs_have_finite_gradients():
  mask = jnp.array([[True, False, True]])
  grads = jax.grad(lambda x: masked_log_probs(x, mask)[0, 0])(jnp.array([[0.0, 3.0, 0.0]]))
  np.testing.assert_allclose(grads, [[0.5, 0.0, -0.5]], atol=1e-6)
