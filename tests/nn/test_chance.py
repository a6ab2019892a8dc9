"""Tests of networks with chance nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.core.config import NetworkConfig
from moozi.core.config.chance import ChanceConfig
from moozi.nn.model import make_model
from tests.fast_jit import fast_jit
from tests.nn.test_model import LENGTH, PHI, SMALL, SPEC

CODES = 5
HEIGHT, WIDTH, CHANNELS = SPEC.frame_shape


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "norm"), [("conv_latent", "layer"), ("mlp", "batch")])
def test_chance_interface(kind, norm):
  model = make_model(
    NetworkConfig(kind=kind, norm=norm, **SMALL), SPEC, LENGTH, PHI, ChanceConfig(codes=CODES)
  )
  chance, depth = model.chance, CHANNELS + SPEC.num_actions
  assert chance is not None
  assert chance.num_codes == CODES
  history = jax.random.normal(jax.random.PRNGKey(1), (4, HEIGHT, WIDTH, LENGTH * depth))
  transition = jax.random.normal(jax.random.PRNGKey(2), (4, HEIGHT, WIDTH, (LENGTH + 1) * depth))
  action = jnp.arange(4)

  def run(key):
    params, state = model.init(key, history)
    # Without this, all codes have probability 1/N, and argmax takes code 0.
    params["afterstate/heads/chance"]["b"] = jnp.arange(CODES, dtype=jnp.float32)
    root, state = model.root_inference(params, state, history, True)
    after, state = chance.afterstate(params, state, root.hidden_state, action, False)
    one_hot = jnp.eye(CODES)
    last, _ = chance.outcome(params, state, after.hidden_state, one_hot[jnp.full(4, CODES - 1)], False)
    first, _ = chance.outcome(params, state, after.hidden_state, one_hot[jnp.zeros(4, int)], False)
    encoded, _ = chance.encode(params, state, transition, True)
    likely, _ = model.recurrent_inference(params, state, root.hidden_state, action, False)
    return root, after, first, last, encoded, likely

  root, after, first, last, encoded, likely = fast_jit(run)(jax.random.PRNGKey(0))
  assert after.hidden_state.shape == root.hidden_state.shape == last.hidden_state.shape
  assert after.value_logits.shape == last.value_logits.shape == last.reward_logits.shape == (4, PHI.size)
  assert after.chance_logits.shape == encoded.shape == (4, CODES)
  assert last.policy_logits.shape == (4, SPEC.num_actions)
  np.testing.assert_allclose(likely.hidden_state, last.hidden_state, rtol=1e-5, atol=1e-5)
  assert np.abs(np.asarray(first.hidden_state - last.hidden_state)).max() > 1e-4
  assert np.abs(np.diff(np.asarray(after.hidden_state), axis=0)).max() > 1e-4
  assert len({tuple(row) for row in np.asarray(encoded).round(4).tolist()}) == 4
  np.testing.assert_allclose(np.sum(encoded, axis=-1), 0, atol=1e-5)
  np.testing.assert_allclose(np.sum(np.square(encoded), axis=-1), 1, atol=1e-2)
  assert after.reward_logits is None


@pytest.mark.slow
def test_reward_of_the_afterstate_and_a_small_encoder():
  """The outcome has no reward head, and every recurrent inference has the reward of its afterstate."""
  own = ChanceConfig(codes=CODES, reward_from="afterstate", encoder_size=3)
  model = make_model(NetworkConfig(kind="mlp", **SMALL), SPEC, LENGTH, PHI, own)
  history = jax.random.normal(
    jax.random.PRNGKey(1), (4, HEIGHT, WIDTH, LENGTH * (CHANNELS + SPEC.num_actions))
  )

  def run(key):
    params, state = model.init(key, history)
    params["afterstate/heads/reward"]["b"] = jnp.arange(PHI.size, dtype=jnp.float32)
    root, state = model.root_inference(params, state, history, True)
    after, _ = model.chance.afterstate(params, state, root.hidden_state, jnp.arange(4), False)
    code = jnp.eye(CODES)[jnp.zeros(4, int)]
    outcome, _ = model.chance.outcome(params, state, after.hidden_state, code, False)
    likely, _ = model.recurrent_inference(params, state, root.hidden_state, jnp.arange(4), False)
    return params, after, outcome, likely

  params, after, outcome, likely = fast_jit(run)(jax.random.PRNGKey(0))
  assert "outcome/head/reward" not in params
  assert params["encoder/head/hidden"]["w"].shape[0] == 3
  np.testing.assert_allclose(PHI.to_scalar(outcome.reward_logits), 0, atol=1e-6)
  np.testing.assert_array_equal(likely.reward_logits, after.reward_logits)
  reward, q_value = after.reward_and_q_value(PHI, 0.5)
  np.testing.assert_allclose(reward, PHI.to_scalar(after.reward_logits))
  np.testing.assert_allclose(q_value, reward + 0.5 * PHI.to_scalar(after.value_logits), rtol=1e-5)


def test_model_without_codes_has_no_chance_nodes():
  model = make_model(NetworkConfig(kind="mlp", **SMALL), SPEC, LENGTH, PHI)
  assert model.chance is None
  depth = CHANNELS + SPEC.num_actions
  history = jax.ShapeDtypeStruct((2, HEIGHT, WIDTH, LENGTH * depth), jnp.float32)
  params, _ = jax.eval_shape(model.init, jax.random.PRNGKey(0), history)
  assert {name.partition("/")[0] for name in params} == {
    "representation",
    "prediction",
    "dynamics",
    "projection",
  }


@pytest.mark.slow
def test_encoder_centers_its_frames():
  """A constant background does not change the encoder's outputs once its mean is known."""
  network = NetworkConfig(kind="mlp", center_frames=True, batch_norm_decay=0.5, **SMALL)
  model = make_model(network, SPEC, LENGTH, PHI, ChanceConfig(codes=CODES))
  depth, planes = CHANNELS + SPEC.num_actions, (LENGTH + 1) * CHANNELS
  history = jnp.zeros((4, HEIGHT, WIDTH, LENGTH * depth))
  transition = jax.random.normal(jax.random.PRNGKey(2), (4, HEIGHT, WIDTH, (LENGTH + 1) * depth))
  shifted = transition.at[..., :planes].add(100.0)
  params, first = model.init(jax.random.PRNGKey(0), history)
  encode, out = fast_jit(model.chance.encode, static_argnums=3), []
  for x in (transition, shifted):
    state = first
    for _ in range(60):
      _, state = encode(params, state, x, True)
    out.append(np.asarray(encode(params, state, x, False)[0]))
  np.testing.assert_allclose(out[0], out[1], atol=1e-2)
