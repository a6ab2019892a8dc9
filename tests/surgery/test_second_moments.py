"""The second moments of new weights: the mean of those that are carried."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from moozi.surgery.plan import make_plan
from moozi.surgery.transform import transform
from tests.surgery.kinds import config_of, operate, random_state
from tests.surgery.test_networks import CATCH

EXTENDED = dataclasses.replace(CATCH, num_env_actions=5)


def test_new_arrays_have_the_mean_second_moment_of_all_carried_ones():
  _, state, after, _ = operate(config_of(), config_of("network.num_prediction_blocks=2"))
  names = [name for name in after if name.startswith("opt_state/1/nu/")]
  is_new = {name: name.removeprefix("opt_state/1/nu/").startswith("prediction/block_1/") for name in names}
  assert sum(is_new.values()) == 6
  mean = np.mean(np.concatenate([state[name].ravel() for name in names if not is_new[name]]))
  for name in names:
    np.testing.assert_allclose(after[name], mean if is_new[name] else state[name], rtol=1e-5)
    assert not (is_new[name] and after[name.replace("/nu/", "/mu/")].any())


def test_moments_of_weights_without_a_gradient_do_not_count():
  config = config_of()
  plan = make_plan(config, CATCH, config, EXTENDED)
  state = random_state(config, CATCH)
  head, dense = (f"opt_state/1/nu/{name}" for name in ("prediction/heads/policy/w", "representation/dense/w"))
  state[head][:, 0] = 0  # of the dummy
  state[dense][:] = 0
  after = transform(state, plan)
  np.testing.assert_allclose(after[head][:, 4:], state[head][:, 1:].mean(), rtol=1e-6)
  assert not after[head][:, 0].any()
  # An array without any has the mean of all others.
  carried = np.concatenate([x[x > 0] for name, x in state.items() if name.startswith("opt_state/1/nu/")])
  is_new = plan.arrays["representation/dense/w"].maps[0].is_new
  np.testing.assert_allclose(after[dense][is_new], carried.mean(), rtol=1e-4)
  assert not after[dense][~is_new].any()


def test_the_first_steps_of_new_weights_are_not_larger_than_the_learning_rate():
  """With gradients of the size of those before, a new weight moves as an old one does."""
  _, _, after, _ = operate(config_of(), config_of(), CATCH, EXTENDED)
  new = after["opt_state/1/nu/prediction/heads/policy/w"][0, -1]
  optimizer = optax.scale_by_adam()
  for nu, largest in ((new, 1.0), (np.float32(0), 6.6)):
    state = optimizer.init(jnp.zeros(()))._replace(count=jnp.int32(5000), nu=jnp.asarray(nu))
    steps = []
    for _ in range(60):
      step, state = optimizer.update(jnp.sqrt(new), state)
      steps.append(float(step))
    assert max(steps) == pytest.approx(largest, rel=0.02)
