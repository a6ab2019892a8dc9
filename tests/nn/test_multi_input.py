"""Tests of networks for observations of several arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.baselines.ppo.actor_critic import make_network
from moozi.core import plugins
from moozi.core.config import NetworkConfig
from moozi.core.config.chance import ChanceConfig
from moozi.core.config.ppo import PPONetworkConfig
from moozi.core.errors import UserError
from moozi.core.frame_parts import make_parts
from moozi.core.spec import EnvSpec
from moozi.nn.model import make_model
from moozi.ops.frame_parts import split_frames
from moozi.ops.history import init_history, network_input
from tests.acting.parameters import random_params
from tests.fast_jit import fast_jit
from tests.nn.test_model import LENGTH, PHI, SHALLOW, SMALL

ARRAYS = (
  ("before", (3,), False, False),
  ("camera", (5, 6, 2), False, False),
  ("after", (2, 2), False, False),
  ("map", (2, 2, 1), False, False),
)


def spec_of(arrays=ARRAYS):
  parts = make_parts(arrays)
  return EnvSpec(
    name="t:m",
    frame_shape=(1, 1, parts[-1].stop),
    frame_dtype="float32",
    num_env_actions=3,
    frame_parts=parts,
  )


def stacked_of(spec, length, batch=3):
  """Returns a random stacked history."""
  channels = length * (spec.frame_shape[2] + spec.num_actions)
  return np.random.default_rng(1).standard_normal((batch, 1, 1, channels), np.float32)


def drawn(model, stacked):
  """Returns random parameters, and the initial state as it is in shape, of zeros."""
  params, state = jax.eval_shape(model.init, jax.random.PRNGKey(0), stacked)
  return random_params(params), jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), state)


def seen(gradient, spec, length):
  """Returns, for each part in each frame, whether all of its numbers have a gradient."""
  size = spec.frame_shape[2]
  vectors = np.asarray(gradient)[:, 0, 0, : length * size].reshape(-1, length, size)
  return [(array != 0).any(axis=0).all() for array in split_frames(vectors, spec.frame_parts)]


@pytest.mark.parametrize("norm", ["layer", pytest.param("batch", marks=pytest.mark.slow)])
def test_the_representation_sees_each_array_of_each_frame(norm):
  spec = spec_of()
  model = make_model(NetworkConfig(kind="multi_input", norm=norm, **SHALLOW), spec, LENGTH, PHI)
  stacked = stacked_of(spec, LENGTH)
  params, state = drawn(model, stacked)

  def entry(x):
    return jnp.sum(model.represent(params, state, x, True)[0][:, 0] * jnp.arange(1.0, 4.0))

  gradient = fast_jit(jax.grad(entry))(stacked)
  assert seen(gradient, spec, LENGTH) == [True] * 4
  assert (np.asarray(gradient)[:, 0, 0, -LENGTH * spec.num_actions :] != 0).any()
  shapes = {name: layer["w"].shape for name, layer in params.items() if "w" in layer}
  assert shapes["representation/image_0/conv"] == (3, 3, 2 * LENGTH, 8)
  assert shapes["representation/numbers"] == (LENGTH * (7 + spec.num_actions), 8)
  assert shapes["representation/mlp/dense"] == (8 + 3 * 4 * 8 + 2 * 2 * 8, 8)


def test_the_encoder_of_outcomes_sees_each_array():
  spec = spec_of()
  model = make_model(
    NetworkConfig(kind="multi_input", **SHALLOW), spec, LENGTH, PHI, ChanceConfig(codes=4, encoder_size=6)
  )
  params, state = drawn(model, stacked_of(spec, LENGTH))

  def entry(x):
    return jnp.sum(model.chance.encode(params, state, x, False)[0][:, 0])

  assert seen(fast_jit(jax.grad(entry))(stacked_of(spec, LENGTH + 1)), spec, LENGTH + 1) == [True] * 4
  assert params["outcome_representation/numbers"]["w"].shape[1] == 6


def test_large_images_are_downsampled():
  spec = spec_of((("camera", (64, 48, 3), False, False), ("wide", (20, 30, 1), False, False)))
  model = make_model(NetworkConfig(kind="multi_input", **SMALL), spec, 1, PHI)
  params = jax.eval_shape(model.init, jax.random.PRNGKey(0), stacked_of(spec, 1))[0]
  assert params["representation/image_0/conv"]["w"].shape == (8, 8, 3, 8)
  # 64 × 48 becomes 15 × 11, then 8 × 6; 20 × 30 becomes 18 × 28, then 9 × 14, then 5 × 7.
  assert params["representation/mlp/dense"]["w"].shape[0] == 8 + 8 * 6 * 16 + 5 * 7 * 16


@pytest.mark.parametrize("sharing", ["shared", pytest.param("separate", marks=pytest.mark.slow)])
def test_the_network_of_baselines_sees_each_array_of_each_frame(sharing):
  spec = spec_of()
  config = PPONetworkConfig(kind="multi_input", sharing=sharing, hidden_sizes=(32, 16), channels=(3, 8))
  network = make_network(config, spec)
  frames = np.random.default_rng(1).standard_normal((3, LENGTH, *spec.frame_shape), np.float32)
  params = random_params(jax.eval_shape(network.init, jax.random.PRNGKey(0), frames))

  def entries(x):
    policy, value = network.apply(params, x)
    weights = jnp.arange(1.0, 4.0)
    return jnp.stack([jnp.sum(policy * weights[:, None]), jnp.sum(value * weights)])

  for found in fast_jit(jax.jacrev(entries))(frames):
    gradient = np.moveaxis(np.asarray(found), 1, -2).reshape(3, 1, 1, -1)
    assert seen(gradient, spec, LENGTH) == [True] * 4
  prefix = "trunk" if sharing == "shared" else "value_trunk"
  assert params[f"{prefix}_image_0_conv_0"]["w"].shape == (3, 3, 2 * LENGTH, 3)
  assert params[f"{prefix}_numbers"]["w"].shape == (LENGTH * 7, 32)
  assert params[f"{prefix}_dense_0"]["w"].shape == (32 + 1 * 2 * 8 + 2 * 2 * 8, 32)


def test_baselines_read_large_images_as_nature_conv_does():
  spec = spec_of((("camera", (36, 40, 3), False, False), ("small", (35, 40, 1), False, False)))
  network = make_network(PPONetworkConfig(kind="multi_input", hidden_sizes=(), sharing="shared"), spec)
  frames = jnp.asarray(init_history(2, 1, spec).frames)
  params = jax.eval_shape(network.init, jax.random.PRNGKey(0), frames)
  assert params["trunk_image_0_conv_0"]["w"].shape == (8, 8, 3, 32)
  assert params["trunk_image_1_conv"]["w"].shape == (3, 3, 1, 16)
  assert params["policy"]["w"].shape[0] == 1 * 1 * 64 + 33 * 38 * 16


def test_a_network_of_ones_own_gets_the_flat_history(monkeypatch):
  spec, found = spec_of(), {}

  def make(config, num_actions, support_size, num_frame_planes):
    found["planes"] = num_frame_planes

    def represent(stacked_history, is_training):
      found["input"] = stacked_history
      return jnp.zeros((len(stacked_history), 4))

    def predict(x, is_training):
      return jnp.zeros((len(x), support_size)), jnp.zeros((len(x), num_actions))

    return represent, predict, lambda x, a, t: (x, jnp.zeros((len(x), support_size))), lambda x, t: x

  monkeypatch.setitem(plugins.NETWORKS.registered, "records_its_input", make)
  model = make_model(NetworkConfig(kind="records_its_input", **SMALL), spec, LENGTH, PHI)
  frames = np.random.default_rng(0).random((3, LENGTH, *spec.frame_shape), np.float32)
  stacked = jnp.asarray(network_input(frames, np.zeros((3, LENGTH), np.int32), spec))
  params, state = model.init(jax.random.PRNGKey(0), stacked)
  model.represent(params, state, stacked, False)
  assert found["planes"] == LENGTH * spec.frame_shape[2]
  np.testing.assert_array_equal(
    found["input"][:, 0, 0, : found["planes"]], np.moveaxis(frames, 1, -2).reshape(3, -1)
  )


@pytest.mark.parametrize(
  ("shape", "found"),
  [
    ((1, 1, 6), r"name=t:t are vectors of 6 numbers, for which there is mlp$"),
    ((5, 4, 2), r"name=t:t are images of 5×4×2, for which there is conv"),
  ],
)
def test_observations_without_parts(shape, found):
  spec = EnvSpec(name="t:t", frame_shape=shape, frame_dtype="float32", num_env_actions=2)
  for make in (
    lambda: make_model(NetworkConfig(kind="multi_input"), spec, 1, PHI),
    lambda: make_network(PPONetworkConfig(kind="multi_input"), spec),
  ):
    with pytest.raises(UserError, match=rf"^network.kind=multi_input: needs a Dict or Tuple.*{found}"):
      make()
