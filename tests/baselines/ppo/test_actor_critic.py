"""Tests of PPO's network and agent."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.baselines.ppo.actor_critic import PPONetwork, make_network, make_ppo
from moozi.core.config.ppo import PPONetworkConfig
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.ops.history import init_history
from moozi.ops.policy import log_prob_of
from moozi.ops.scalar_transform import ScalarTransform
from tests.fast_jit import fast_jit

SPEC = EnvSpec(name="test:grid", frame_shape=(6, 5, 2), frame_dtype="bool", num_env_actions=3)
ATARI = EnvSpec(name="test:atari", frame_shape=(84, 84, 1), frame_dtype="uint8", num_env_actions=3)


@functools.cache
def init(config: PPONetworkConfig, spec: EnvSpec = SPEC, history_length: int = 1):
  network = make_network(config, spec)
  frames = init_history(2, history_length, spec).frames
  return network, jax.device_get(fast_jit(network.init)(jax.random.PRNGKey(0), frames))


def gram(weights: np.ndarray) -> np.ndarray:
  """Returns the Gram matrix over the smaller dimension of the weights, which are flattened to 2-D."""
  flat = np.asarray(weights).reshape(-1, weights.shape[-1])
  return flat.T @ flat if flat.shape[0] >= flat.shape[1] else flat @ flat.T


@pytest.mark.parametrize("kind", ["mlp", pytest.param("conv", marks=pytest.mark.slow)])
def test_orthogonal_initialization(kind):
  _, params = init(PPONetworkConfig(kind=kind))
  scales = {"policy": 0.01, "value": 1.0}
  for name, layer in params.items():
    product = gram(layer["w"])
    np.testing.assert_allclose(
      product, scales.get(name, np.sqrt(2)) ** 2 * np.eye(len(product)), atol=1e-5, err_msg=name
    )
    np.testing.assert_array_equal(layer["b"], 0.0)
  assert len(params) == (6 if kind == "mlp" else 8)


@pytest.mark.slow
def test_without_orthogonal_initialization():
  _, params = init(PPONetworkConfig(orthogonal_init=False))
  weights = np.asarray(params["policy_trunk_dense_0"]["w"])
  product = gram(weights)
  assert np.abs(product - np.diag(np.diag(product))).max() > 0.1
  assert weights.std() == pytest.approx(1 / np.sqrt(weights.shape[0]), rel=0.05)


def test_initial_policy_is_nearly_uniform():
  network, params = init(PPONetworkConfig())
  frames = np.random.default_rng(0).random((4, 1, 6, 5, 2)) < 0.5
  logits, value = jax.jit(network.apply)(params, frames)
  assert logits.shape == (4, SPEC.num_actions)
  assert value.shape == (4,)
  assert np.abs(logits).max() < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("sharing", "is_shared"), [("separate", False), ("shared", True)])
def test_sharing(sharing, is_shared):
  network, params = init(PPONetworkConfig(sharing=sharing))
  frames = np.ones((1, 1, 6, 5, 2), bool)
  of_value = jax.jit(jax.grad(lambda p: network.apply(p, frames)[1].sum()))(params)
  of_policy = jax.jit(jax.grad(lambda p: network.apply(p, frames)[0][0, 1]))(params)
  touched = [
    {name for name, layer in grads.items() if np.abs(layer["w"]).max() > 0} for grads in (of_value, of_policy)
  ]
  assert "policy" not in touched[0]
  assert "value" not in touched[1]
  assert bool(touched[0] & touched[1]) is is_shared
  assert touched[0] | touched[1] == set(params)


@pytest.mark.slow
def test_activation():
  frames = np.ones((1, 1, 6, 5, 2), bool)
  out = []
  for activation in ("tanh", "relu"):
    network, params = init(PPONetworkConfig(activation=activation))
    out.append(float(network.apply(params, frames)[1][0]))
  assert out[0] != out[1]


def test_frames_are_scaled_and_stacked_oldest_first():
  spec = EnvSpec(name="test:one", frame_shape=(1, 1, 1), frame_dtype="uint8", num_env_actions=1)
  config = PPONetworkConfig(hidden_sizes=(), orthogonal_init=False)
  network, params = init(config, spec, history_length=3)
  assert params["value"]["w"].shape == (3, 1)
  params["value"]["w"] = np.float32([[1.0], [10.0], [100.0]])
  frames = np.array([51, 102, 255], np.uint8).reshape(1, 3, 1, 1, 1)
  assert fast_jit(network.apply)(params, frames)[1][0] == pytest.approx(0.2 + 4 + 100, rel=1e-5)
  plain = make_network(config, spec, scale_frames=False)
  assert fast_jit(plain.apply)(params, frames)[1][0] == pytest.approx(51 + 1020 + 25500, rel=1e-5)


def test_nature_conv_shapes():
  config = PPONetworkConfig(kind="nature_conv", sharing="shared", hidden_sizes=(512,), activation="relu")
  network = make_network(config, ATARI)
  shape = jax.eval_shape(network.init, jax.random.PRNGKey(0), init_history(1, 4, ATARI).frames)
  sizes = {name: layer["w"].shape for name, layer in shape.items()}
  assert sizes == {
    "trunk_conv_0": (8, 8, 4, 32),
    "trunk_conv_1": (4, 4, 32, 64),
    "trunk_conv_2": (3, 3, 64, 64),
    "trunk_dense_0": (7 * 7 * 64, 512),
    "policy": (512, ATARI.num_actions),
    "value": (512, 1),
  }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlp", "conv"])
def test_shapes_of_the_options(kind):
  """The grid of 6×5 cells shrinks to 4×3 and 2×1; the third convolution is padded and keeps this size."""
  config = PPONetworkConfig(kind=kind, sharing="shared", hidden_sizes=(7,), channels=(8, 9, 3))
  network = make_network(config, SPEC, layer_norm=True, transform=ScalarTransform(-2, 4))
  frames = np.random.default_rng(0).random((5, 1, 6, 5, 2)) < 0.5
  params = jax.jit(network.init)(jax.random.PRNGKey(0), frames)
  sizes = {name: layer["w"].shape for name, layer in params.items() if "w" in layer}
  convolutions = {
    "trunk_conv_0": (3, 3, 2, 8),
    "trunk_conv_1": (3, 3, 8, 9),
    "trunk_conv_2": (3, 3, 9, 3),
    "trunk_dense_0": (2 * 1 * 3, 7),
  }
  dense = {"policy": (7, SPEC.num_actions), "value": (7, 7)}
  assert sizes == (convolutions if kind == "conv" else {"trunk_dense_0": (60, 7)}) | dense
  assert len([name for name in params if "layer_norm" in name]) == (4 if kind == "conv" else 1)
  logits, head = jax.jit(network.apply)(params, frames)
  assert (logits.shape, head.shape) == ((5, SPEC.num_actions), (5, 7))
  np.testing.assert_allclose(
    network.value(head), ScalarTransform(-2, 4).to_scalar(np.asarray(head)), rtol=1e-5
  )


@pytest.mark.slow
def test_layer_norm_ignores_the_scale_of_frames():
  spec = EnvSpec(name="test:grid", frame_shape=(6, 5, 2), frame_dtype="float32", num_env_actions=3)
  network = make_network(PPONetworkConfig(kind="mlp"), spec, layer_norm=True)
  frames = np.random.default_rng(0).random((4, 1, 6, 5, 2)).astype(np.float32)
  params = network.init(jax.random.PRNGKey(0), frames)
  for a, b in zip(network.apply(params, frames), network.apply(params, 10 * frames), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


# --- agent --------------------------------------------------------------------------------------------

LOGITS = np.float32([5.0, 0.0, 1.0, 2.0])
TABLE = PPONetwork(
  init=lambda key, frames: {},
  apply=lambda params, frames: (jnp.tile(LOGITS, (len(frames), 1)), jnp.full(len(frames), 7.0)),
)


def timestep(masks, is_last=None, is_truncated=None) -> BatchedTimeStep:
  size = len(masks)
  last = np.zeros(size, bool) if is_last is None else np.array(is_last, bool)
  return BatchedTimeStep(
    frame=np.zeros((size, *SPEC.frame_shape), bool),
    last_reward=np.zeros(size, np.float32),
    is_first=np.zeros(size, bool),
    is_last=last,
    is_truncated=np.zeros(size, bool) if is_truncated is None else np.array(is_truncated, bool),
    to_play=np.zeros(size, np.int32),
    legal_actions_mask=np.array(masks, bool),
  )


ACT = fast_jit(make_ppo(TABLE, SPEC, 1).act)


def act(step: BatchedTimeStep, seed: int = 0, temperature: float = 1.0):
  history = init_history(len(step.is_last), 1, SPEC)
  return ACT(({}, {}), history, step, jax.random.PRNGKey(seed), temperature)


def test_illegal_actions_are_never_drawn():
  step = timestep([[0, 1, 1, 0]] * 2000)
  _, output = act(step)
  counts = np.bincount(output.action, minlength=4) / 2000
  expected = np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum()
  np.testing.assert_allclose(counts, [0, *expected, 0], atol=0.04)
  np.testing.assert_allclose(output.action_probs[0], [0, *expected, 0], rtol=1e-5)
  chosen = np.asarray(output.action_probs)[np.arange(2000), output.action]
  np.testing.assert_allclose(
    log_prob_of(output.extras["log_probs"], output.action), np.log(chosen), rtol=1e-5
  )


def test_temperature_zero_is_greedy():
  for seed in range(5):
    _, output = act(timestep([[0, 1, 1, 0], [0, 1, 1, 1], [0, 1, 0, 0]]), seed, temperature=0.0)
    np.testing.assert_array_equal(output.action, [2, 3, 1])
  assert output.extras["log_probs"][2, 1] == pytest.approx(0.0)


def test_last_frames():
  step = timestep([[1, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1]], is_last=[1, 1, 0], is_truncated=[0, 1, 0])
  history, output = act(step, temperature=0.0)
  np.testing.assert_array_equal(output.action, [0, 0, 3])
  np.testing.assert_array_equal(history.actions[:, -1], [0, 0, 3])
  np.testing.assert_array_equal(output.root_value, [0, 7, 7])
  np.testing.assert_array_equal(output.action_probs[0], [1, 0, 0, 0])
  assert output.extras["log_probs"][0, 0] == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_non_finite_network_plays_legal_actions(temperature):
  logits = np.tile(np.float32([5.0, 0.0, np.nan, 2.0]), (200, 1))
  broken = PPONetwork(
    init=lambda key, frames: {}, apply=lambda params, frames: (jnp.asarray(logits), jnp.zeros(200))
  )
  history, step = init_history(200, 1, SPEC), timestep([[0, 1, 1, 0]] * 200)
  agent = make_ppo(broken, SPEC, 1)
  _, output = fast_jit(agent.act)(({}, {}), history, step, jax.random.PRNGKey(0), temperature)
  assert set(output.action.tolist()) == ({1, 2} if temperature else {1})
  np.testing.assert_allclose(output.action_probs[0], [0, 0.5, 0.5, 0])


@pytest.mark.slow
def test_records_defined_before_jax_are_traced():
  program = (
    "import sys, moozi.core.records as records\n"
    "assert 'jax' not in sys.modules\n"
    "import moozi.baselines.ppo.actor_critic as network, jax\n"
    "from moozi.core.config.ppo import PPONetworkConfig\n"
    "from moozi.core.spec import EnvSpec\n"
    "spec = EnvSpec(name='t:t', frame_shape=(1, 1, 1), frame_dtype='bool', num_env_actions=1)\n"
    "network.make_network(PPONetworkConfig(), spec)\n"
    "assert not jax.tree_util.all_leaves([object.__new__(records.BatchedTimeStep)])\n"
  )
  subprocess.run([sys.executable, "-c", program], check=True)
