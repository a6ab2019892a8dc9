"""Tests of the networks."""

import dataclasses
import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.core.config import NetworkConfig
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.io.config import load_config
from moozi.nn.blocks import BatchNorm, FrameNorm, normalize_latent
from moozi.nn.conv_latent import UnpaddedConv, _convolve, _with_fast_gradient
from moozi.nn.model import Model, make_model
from moozi.nn.resnet import PointwiseConv, _offset_vectors
from moozi.ops.history import normalize_frame, stack_history
from moozi.ops.scalar_transform import ScalarTransform
from tests.fast_jit import fast_jit

SPEC = EnvSpec(name="t:t", frame_shape=(5, 4, 2), frame_dtype="bool", num_env_actions=3)
VECTOR = EnvSpec(name="t:v", frame_shape=(1, 1, 6), frame_dtype="float32", num_env_actions=2)
PHI = ScalarTransform(-5, 5, 0.001)
LENGTH = 2
SMALL = {
  "channels": 8,
  "num_representation_blocks": 2,
  "num_dynamics_blocks": 1,
  "num_prediction_blocks": 1,
  "latent_size": 8,
  "head_size": 6,
}
SHALLOW = SMALL | {"num_representation_blocks": 0, "num_prediction_blocks": 0}


@functools.cache
def build(kind, norm):
  model = jitted(make_model(NetworkConfig(kind=kind, norm=norm, **SMALL), SPEC, LENGTH, PHI))
  height, width, channels = SPEC.frame_shape
  shape = (4, height, width, LENGTH * (channels + SPEC.num_actions))
  history = jax.random.normal(jax.random.PRNGKey(1), shape)
  params, net_state = fast_jit(model.init)(jax.random.PRNGKey(0), history)
  return model, params, net_state, history


def jitted(model: Model) -> Model:
  """Returns the model with compiled functions, which make the tests faster."""
  return dataclasses.replace(
    model,
    root_inference=fast_jit(model.root_inference, static_argnums=3),
    recurrent_inference=fast_jit(model.recurrent_inference, static_argnums=4),
    project=fast_jit(model.project, static_argnums=3),
    represent=fast_jit(model.represent, static_argnums=3),
  )


@pytest.mark.parametrize(
  ("kind", "norm"),
  [
    ("mlp", "batch"),
    pytest.param("conv_latent", "layer", marks=pytest.mark.slow),
    pytest.param("resnet", "batch", marks=pytest.mark.slow),
    pytest.param("mlp", "layer", marks=pytest.mark.slow),
    pytest.param("mlp", "none", marks=pytest.mark.slow),
  ],
)
def test_interface(kind, norm):
  model, params, net_state, history = build(kind, norm)
  action = jnp.array([0, 1, 2, 3], jnp.int32)
  root, state_1 = model.root_inference(params, net_state, history, True)
  recurrent, state_2 = model.recurrent_inference(params, state_1, root.hidden_state, action, True)
  projected, state_3 = model.project(params, state_2, recurrent.hidden_state, True)
  hidden, _ = model.represent(params, net_state, history, True)
  np.testing.assert_allclose(hidden, root.hidden_state, rtol=1e-5, atol=1e-6)
  for output in (root, recurrent):
    assert output.value_logits.shape == output.reward_logits.shape == (4, PHI.size)
    assert output.policy_logits.shape == (4, 4)
    assert output.hidden_state.shape == projected.shape == root.hidden_state.shape
    assert all(np.isfinite(leaf).all() for leaf in jax.tree_util.tree_leaves(output))
  np.testing.assert_array_equal(PHI.to_scalar(root.reward_logits), np.zeros(4))
  assert jax.tree_util.tree_structure(state_3) == jax.tree_util.tree_structure(net_state)
  assert root.hidden_state.shape == ((4, 5, 4, 8) if kind == "resnet" else (4, 8))


@pytest.mark.parametrize(
  ("kind", "norm"),
  [("conv_latent", "layer"), ("mlp", "batch"), pytest.param("resnet", "batch", marks=pytest.mark.slow)],
)
def test_action_and_frame_matter(kind, norm):
  model, params, net_state, history = build(kind, norm)
  same = jnp.broadcast_to(history[:1], history.shape)
  root, _ = model.root_inference(params, net_state, same, False)
  recurrent, _ = model.recurrent_inference(params, net_state, root.hidden_state, jnp.arange(4), False)
  flat = np.asarray(recurrent.hidden_state).reshape(4, -1)
  assert min(np.abs(flat[i] - flat[j]).max() for i in range(4) for j in range(i)) > 1e-4
  other, _ = model.root_inference(params, net_state, history, False)
  assert np.abs(np.asarray(other.hidden_state - root.hidden_state)[1:]).max() > 1e-4


@pytest.mark.parametrize(
  "kind", ["conv_latent", *(pytest.param(k, marks=pytest.mark.slow) for k in ("resnet", "mlp"))]
)
def test_initial_policy_is_uniform_and_value_zero(kind):
  model, params, net_state, history = build(kind, "layer")
  root, _ = model.root_inference(params, net_state, history, False)
  recurrent, _ = model.recurrent_inference(params, net_state, root.hidden_state, jnp.arange(4), False)
  for output in (root, recurrent):
    np.testing.assert_array_equal(jax.nn.softmax(output.policy_logits), np.full((4, 4), 0.25, np.float32))
    np.testing.assert_allclose(PHI.to_scalar(output.value_logits), np.zeros(4), atol=1e-6)
    np.testing.assert_allclose(PHI.to_scalar(output.reward_logits), np.zeros(4), atol=1e-6)


@pytest.mark.parametrize("kind", ["conv_latent", pytest.param("mlp", marks=pytest.mark.slow)])
def test_long_unrolls_stay_bounded(kind):
  model, params, net_state, history = build(kind, "layer")
  hidden = model.root_inference(params, net_state, history, False)[0].hidden_state
  for _ in range(30):
    hidden = model.recurrent_inference(params, net_state, hidden, jnp.arange(4), False)[0].hidden_state
    np.testing.assert_allclose(jnp.mean(hidden, axis=-1), np.zeros(4), atol=1e-5)
    assert float(jnp.max(jnp.abs(hidden))) <= np.sqrt(8)


@pytest.mark.parametrize("kind", ["conv_latent", "mlp"])
def test_vector_frames(kind):
  model = make_model(NetworkConfig(kind=kind, **SMALL), VECTOR, 1, PHI)
  history = jax.ShapeDtypeStruct((4, 1, 1, 9), jnp.float32)
  params, net_state = jax.eval_shape(model.init, jax.random.PRNGKey(0), history)
  output = jax.eval_shape(lambda p, s, h: model.root_inference(p, s, h, False)[0], params, net_state, history)
  assert output.policy_logits.shape == (4, 3)


def thesis_shapes(history_channels, num_actions, height=10, width=10, support=61):
  """Returns the shapes of all parameters of the network in section 5.1.2 of the thesis, with batch norm."""

  def conv(size, inputs):
    return [(32,), (size, size, inputs, 32)]

  norm_32, norm_128 = [(32,), (32,)], [(128,), (128,)]
  block = 2 * (conv(3, 32) + norm_32)
  flat = height * width * 32

  def head(outputs):
    return [(128,), (flat, 128), *norm_128, (outputs,), (128, outputs)]

  return {
    "representation": conv(1, history_channels) + 6 * block,
    "prediction": block + head(support) + head(num_actions),
    "dynamics": conv(1, 32 + num_actions) + 2 * block + head(support),
    "projection": block,
  }


def test_thesis_network_parameters():
  spec = EnvSpec(name="t:m", frame_shape=(10, 10, 4), frame_dtype="bool", num_env_actions=3)
  config = NetworkConfig(kind="resnet", norm="batch", channels=32, head_size=128)
  model = make_model(config, spec, 4, ScalarTransform())
  history = jax.ShapeDtypeStruct((2, 10, 10, 32), jnp.float32)
  params, net_state = jax.eval_shape(model.init, jax.random.PRNGKey(0), history)
  got: dict[str, list] = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    got.setdefault(path[0].key.split("/")[0], []).append(leaf.shape)
  want = thesis_shapes(history_channels=4 * (4 + 4), num_actions=4)
  assert {k: sorted(v) for k, v in got.items()} == {k: sorted(v) for k, v in want.items()}
  num_norms = 12 + (2 + 2) + (4 + 1) + 2
  assert len(jax.tree_util.tree_leaves(net_state)) == 2 * num_norms


@pytest.mark.slow
def test_mover_view_exchanges_the_players_planes():
  """A position with exchanged colors has the same hidden state for the other player."""
  spec = EnvSpec(
    name="t:b", frame_shape=(3, 3, 4), frame_dtype="bool", num_env_actions=9, player_planes=(0, 2, 3)
  )
  model = jitted(make_model(NetworkConfig(kind="mlp", **SMALL, mover_view=True), spec, 2, PHI))
  frames = jax.random.bernoulli(jax.random.PRNGKey(0), 0.4, (5, 2, 3, 3, 4)).astype(jnp.float32)
  actions = jax.random.randint(jax.random.PRNGKey(1), (5, 2), 0, 10)
  # Player 0 moves in the newest frame, player 1 in the one before.
  frames = frames.at[:, :, :, :, 3].set(jnp.array([1.0, 0.0])[:, None, None])
  exchanged = frames[..., jnp.array([2, 1, 0, 3])].at[..., 3].set(1 - frames[..., 3])
  params, net_state = fast_jit(model.init)(jax.random.PRNGKey(2), stack_history(frames, actions, (10,)))
  # The plane of the player to move still differs.
  dense = params["representation/dense"]["w"]
  mover_rows = (jnp.arange(len(dense)) % 28 == 3) | (jnp.arange(len(dense)) % 28 == 7)
  params["representation/dense"]["w"] = jnp.where(mover_rows[:, None], 0.0, dense)

  def hidden(x):
    return model.represent(params, net_state, stack_history(x, actions, (10,)), False)[0]

  np.testing.assert_allclose(hidden(frames), hidden(exchanged), rtol=1e-5, atol=1e-6)
  assert float(jnp.max(jnp.abs(hidden(frames) - hidden(frames[..., jnp.array([2, 1, 0, 3])])))) > 0.01


def board_spec(frame_shape, num_env_actions, places):
  return EnvSpec(
    name="t:s",
    frame_shape=frame_shape,
    frame_dtype="bool",
    num_env_actions=num_env_actions,
    action_places=places,
  )


@pytest.mark.slow
@pytest.mark.parametrize(("places", "num_env_actions"), [("cells", 28), ("columns", 4)])
def test_resnet_sees_where_an_action_acts(places, num_env_actions):
  """An action with a place changes the next state near this place only, the others change all of it."""
  spec = board_spec((9, 3, 2), num_env_actions, places)
  config = NetworkConfig(kind="resnet", norm="none", **{**SMALL, "num_dynamics_blocks": 0})
  model = jitted(make_model(config, spec, 1, PHI))
  history = jax.random.normal(jax.random.PRNGKey(0), (1, 9, 3, 2 + spec.num_actions))
  params, net_state = fast_jit(model.init)(jax.random.PRNGKey(1), history)
  # The first action places, and the dummy and the last action, which has none.
  assert params["dynamics/conv"]["w"].shape == (1, 1, 8 + 3, 8)
  params["dynamics/conv"]["w"] = params["dynamics/conv"]["w"].at[:, :, 8].set(0)  # the dummy's plane
  root, _ = model.root_inference(params, net_state, history, False)

  def next_state(action):
    out, _ = model.recurrent_inference(params, net_state, root.hidden_state, jnp.array([action]), False)
    return np.asarray(out.hidden_state[0])

  none = next_state(0)
  changed = np.any(next_state(1) != none, axis=-1)
  assert changed[0, 0]
  # Two 3×3 convolutions reach two cells.
  if places == "cells":
    assert not changed[3:].any()
    assert np.any(next_state(25) != none, axis=-1)[8, 0]  # cell 24, the first of the last row
  else:
    assert changed[8, 0]
  assert np.any(next_state(num_env_actions) != none, axis=-1).all()


def test_offset_vectors():
  height, width, channels = 4, 3, 2
  table = np.random.default_rng(0).normal(size=(2 * height - 1, 2 * width - 1, channels)).astype(np.float32)
  vectors = hk.transform(lambda placed: _offset_vectors(placed, height, width, channels))
  placed = np.concatenate([np.eye(12, dtype=np.float32), np.zeros((1, 12), np.float32)])
  got = vectors.apply({"~": {"offsets": table}}, None, jnp.asarray(placed))
  for place in range(12):
    row, column = divmod(place, width)
    for i in range(height):
      for j in range(width):
        want = table[i - row + height - 1, j - column + width - 1]
        np.testing.assert_allclose(got[place, i, j], want, rtol=1e-6)
  np.testing.assert_array_equal(got[12], 0)


@pytest.mark.parametrize("places", [pytest.param("cells", marks=pytest.mark.slow), "columns", "none"])
def test_every_cell_sees_an_action_with_offsets(places):
  spec = board_spec((9, 3, 2), 28, places)
  config = NetworkConfig(
    kind="resnet", norm="none", action_offsets=True, **{**SMALL, "num_dynamics_blocks": 0}
  )
  model = jitted(make_model(config, spec, 1, PHI))
  history = jax.random.normal(jax.random.PRNGKey(0), (2, 9, 3, 2 + spec.num_actions))
  shapes, _ = jax.eval_shape(model.init, jax.random.PRNGKey(1), history)
  assert ("offsets" in shapes.get("dynamics", {})) == (places == "cells")
  if places == "cells":
    params, net_state = fast_jit(model.init)(jax.random.PRNGKey(1), history)
    root, _ = model.root_inference(params, net_state, jnp.stack([history[0]] * 2), False)
    actions = jnp.array([1, 2])  # the first two cells
    out, _ = model.recurrent_inference(params, net_state, root.hidden_state, actions, False)
    assert np.any(out.hidden_state[0] != out.hidden_state[1], axis=-1).all()


@pytest.mark.parametrize(
  ("places", "num_env_actions"),
  [
    pytest.param("cells", 7, marks=pytest.mark.slow),
    pytest.param("columns", 3, marks=pytest.mark.slow),
    ("none", 3),
  ],
)
def test_conv_policy_reads_the_place_of_each_action(places, num_env_actions):
  spec = board_spec((3, 2, 2), num_env_actions, places)
  config = NetworkConfig(kind="resnet", conv_policy=True, **{**SMALL, "num_prediction_blocks": 0})
  model = jitted(make_model(config, spec, 1, PHI))
  history = jax.random.normal(jax.random.PRNGKey(0), (4, 3, 2, 2 + spec.num_actions))
  if places == "none":
    shapes, _ = jax.eval_shape(model.init, jax.random.PRNGKey(1), history)
    assert "prediction/policy_places" not in shapes
    return
  params, net_state = fast_jit(model.init)(jax.random.PRNGKey(1), history)

  def logits_with(w, b):
    params["prediction/policy_places"] = {"w": w, "b": b}
    output, _ = model.root_inference(params, net_state, history, False)
    return np.asarray(output.policy_logits), np.asarray(output.hidden_state)

  zeros = jnp.zeros((1, 1, 8, 1))
  dense, state = logits_with(zeros, jnp.zeros(1))
  logits, _ = logits_with(zeros.at[0, 0, 5, 0].set(2), jnp.full(1, 0.5))
  plane = 2 * state[..., 5] + 0.5
  want = plane.reshape(4, 6) if places == "cells" else plane.mean(axis=1)
  got = logits - dense
  np.testing.assert_allclose(got[:, 1 : spec.num_places + 1], want, rtol=1e-4, atol=1e-5)
  # The dummy and the action without a place.
  np.testing.assert_array_equal(got[:, [0, spec.num_places + 1]], 0)


@pytest.mark.parametrize("kind", ["mlp", pytest.param("resnet", marks=pytest.mark.slow)])
def test_batch_norm_state_changes_in_training_only(kind):
  model, params, net_state, history = build(kind, "batch")
  assert jax.tree_util.tree_leaves(net_state)
  root, trained = model.root_inference(params, net_state, history, True)
  _, kept = model.root_inference(params, trained, history, False)
  _, kept = model.recurrent_inference(params, kept, root.hidden_state, jnp.arange(4), False)
  _, kept = model.project(params, kept, root.hidden_state, False)
  same = jax.tree_util.tree_map(lambda a, b: bool(jnp.array_equal(a, b)), trained, kept)
  assert all(jax.tree_util.tree_leaves(same))
  moved = jax.tree_util.tree_map(lambda a, b: not bool(jnp.array_equal(a, b)), net_state, trained)
  assert any(jax.tree_util.tree_leaves(moved))
  # Inference uses the running averages.
  other, _ = model.root_inference(params, trained, history, False)
  first, _ = model.root_inference(params, net_state, history, False)
  assert float(jnp.max(jnp.abs(other.hidden_state - first.hidden_state))) > 0


def test_batch_norm_by_hand():
  fn = hk.transform_with_state(lambda x, training: BatchNorm(0.9)(x, training))
  x = jnp.array([[1.0, 2.0], [3.0, 6.0]])
  params, state = fn.init(None, x, True)
  out, new = fn.apply(params, state, None, x, True)
  np.testing.assert_allclose(out, [[-1, -1], [1, 1]], atol=1e-4)
  np.testing.assert_allclose(new["batch_norm"]["mean"], [0.2, 0.4], rtol=1e-6)
  np.testing.assert_allclose(new["batch_norm"]["variance"], [0.9 + 0.1, 0.9 + 0.4], rtol=1e-6)
  out, same = fn.apply(params, state, None, x, False)
  np.testing.assert_allclose(out, x, rtol=1e-4)  # the initial averages are mean 0 and variance 1
  np.testing.assert_array_equal(same["batch_norm"]["mean"], [0.0, 0.0])


def test_normalize_latent_by_hand():
  got = normalize_latent(jnp.array([[1.0, 3.0], [5.0, 5.0]]))
  np.testing.assert_allclose(got, [[-1, 1], [0, 0]], atol=1e-4)


def test_rejects_history_of_other_shape():
  model, params, net_state, history = build("mlp", "batch")
  with pytest.raises(ValueError, match="stacked_history"):
    model.root_inference(params, net_state, history[..., :-1], False)


# --- large frames


def large(size, planes, length, **config):
  """Returns a model for frames of size × size, and the shapes of its parameters and layer outputs."""
  spec = EnvSpec(name="t:l", frame_shape=(size, size, planes), frame_dtype="uint8", num_env_actions=5)
  model = make_model(NetworkConfig(**config), spec, length, PHI)
  history = jax.ShapeDtypeStruct((2, size, size, length * (planes + 6)), jnp.float32)
  params, net_state = jax.eval_shape(model.init, jax.random.PRNGKey(0), history)
  jaxpr = jax.make_jaxpr(lambda p, s, h: model.represent(p, s, h, False))(params, net_state, history)
  outputs = [
    (equation.primitive.name, equation.outvars[0].aval.shape[1:])
    for equation in _equations(jaxpr.jaxpr)
    if equation.primitive.name in ("conv_general_dilated", "reduce_window_sum")
  ]
  return model, params, net_state, outputs


def _equations(jaxpr):
  for equation in jaxpr.eqns:
    inner = [value.jaxpr for value in equation.params.values() if hasattr(value, "jaxpr")]
    if inner:
      for part in inner:
        yield from _equations(part)
    else:
      yield equation


def test_resnet_downsamples_as_muzero():
  """The source is Schrittwieser et al. 2020, appendix F: 32 frames of 96×96, 256 channels."""
  _, params, _, outputs = large(96, 3, 32, kind="resnet", channels=256, num_representation_blocks=8)
  sizes = [shape for name, shape in outputs if name == "conv_general_dilated"]
  expected = [(48, 48, 128)] + 4 * [(48, 48, 128)] + [(24, 24, 256)] + 6 * [(24, 24, 256)]
  assert sizes == expected + 6 * [(12, 12, 256)]
  pools = [shape for name, shape in outputs if name == "reduce_window_sum" and shape[-1] == 256]
  assert pools == [(12, 12, 256), (6, 6, 256)]
  kernels = [
    leaf.shape
    for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    if path[0].key.startswith("representation") and leaf.ndim == 4
  ]
  assert all(shape[:2] == (3, 3) for shape in kernels)
  assert (3, 3, 32 * 9, 128) in kernels
  assert len(kernels) == 2 + 2 * 8


@pytest.mark.slow
@pytest.mark.parametrize(
  ("size", "hidden", "num_blocks"),
  [(84, 6, 3), (64, 4, 0), (64, 4, 1), (64, 4, 3), (64, 4, 8), (96, 6, 1), (128, 8, 1)],
)
def test_resnet_of_large_frames(size, hidden, num_blocks):
  config = {**SMALL, "kind": "resnet", "num_representation_blocks": num_blocks}
  model, params, net_state, outputs = large(size, 1, 2, **config)
  shape = (2, hidden, hidden, 8)
  assert len([name for name, _ in outputs if name == "conv_general_dilated"]) == 2 + 2 * num_blocks
  state = jax.ShapeDtypeStruct(shape, jnp.float32)
  action = jax.ShapeDtypeStruct((2,), jnp.int32)
  output, _ = jax.eval_shape(
    lambda p, s, x, a: model.recurrent_inference(p, s, x, a, True), params, net_state, state, action
  )
  assert output.hidden_state.shape == shape
  history = jax.ShapeDtypeStruct((2, size, size, 14), jnp.float32)
  hidden_state, _ = jax.eval_shape(lambda p, s, h: model.represent(p, s, h, True), params, net_state, history)
  assert hidden_state.shape == shape


@pytest.mark.parametrize(
  ("size", "flat"),
  [(84, 100), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((64, 64), (96, 144), (128, 64)))],
)
def test_conv_latent_downsamples_large_frames(size, flat):
  config = {**SMALL, "channels": 16, "latent_size": 256}
  _, params, _, _ = large(size, 1, 4, kind="conv_latent", **config)
  assert params["representation/dense"]["w"].shape == (flat * 32, 256)
  assert params["representation/conv"]["w"].shape == (8, 8, 4, 16)
  assert params["representation/actions"]["w"].shape == (4 * 6, 16)
  assert sum(leaf.size for leaf in jax.tree_util.tree_leaves(params)) < 2_000_000


def test_frames_below_40_cells_are_not_downsampled():
  _, params, _, outputs = large(39, 1, 1, kind="resnet", channels=4, num_representation_blocks=1)
  assert params["representation/conv"]["w"].shape == (1, 1, 7, 4)
  assert {shape for _, shape in outputs} == {(39, 39, 4)}
  _, params, _, _ = large(39, 1, 1, kind="conv_latent", channels=4, latent_size=8)
  assert params["representation/dense"]["w"].shape == (37 * 37 * 4, 8)


def test_conv_latent_of_42_cells():
  """The first convolution reads the last cells too."""
  _, params, _, outputs = large(42, 1, 4, kind="conv_latent", channels=16, latent_size=256)
  assert outputs == [("conv_general_dilated", (10, 10, 16))]
  assert params["representation/dense"]["w"].shape == (10 * 10 * 16, 256)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("resnet", 64), ("conv_latent", 64), ("conv_latent", 42)])
def test_large_frame_matters_everywhere(kind, size):
  config = {**SMALL, "kind": kind, "channels": 4, "num_representation_blocks": 3}
  model, _, _, _ = large(size, 1, 1, **config)
  history = jax.random.normal(jax.random.PRNGKey(1), (1, size, size, 7))
  params, net_state = jax.jit(model.init)(jax.random.PRNGKey(0), history)
  changed = jnp.concatenate(
    [history.at[:, y, x, 0].add(5.0) for y, x in ((3, 3), (30, size - 1), (size - 1, 30))]
  )
  represent = jax.jit(lambda h: model.represent(params, net_state, h, False)[0])
  before, after = represent(history), represent(changed)
  difference = np.abs(np.asarray(after - before)).reshape(3, -1).max(axis=1)
  assert (difference > 1e-4).all()


@pytest.mark.slow
def test_action_layer_equals_tied_convolution():
  """A dense layer on one-hot actions equals a convolution over constant action planes with tied weights."""
  config = {**SMALL, "channels": 4, "latent_size": 3}
  model, _, _, _ = large(64, 1, 2, kind="conv_latent", **config)
  random = np.random.default_rng(0)
  frames = random.random((1, 64, 64, 2), np.float32)
  actions = np.broadcast_to(random.random(12).astype(np.float32), (1, 64, 64, 12))
  history = jnp.concatenate([frames, actions], axis=-1)
  params, net_state = model.init(jax.random.PRNGKey(0), history)
  kernel, tied = params["representation/conv"]["w"], params["representation/actions"]["w"]
  whole = jnp.concatenate([kernel, jnp.broadcast_to(tied / 64, (8, 8, *tied.shape))], axis=2)

  def by_planes(x):
    x = jax.lax.conv_general_dilated(x, whole, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = jax.nn.relu(x + params["representation/conv"]["b"])
    x = jax.nn.relu(hk.Conv2D(8, 4, stride=2, name="conv_1")(x))
    return normalize_latent(hk.Linear(3, name="dense")(x.reshape(1, -1)))

  rest = {name: params[f"representation/{name}"] for name in ("conv_1", "dense")}
  expected = hk.without_apply_rng(hk.transform(by_planes)).apply(rest, history)
  got, _ = model.represent(params, net_state, history, False)
  np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_unpadded_conv_equals_a_convolution_over_all_planes():
  """The parameters are those of `hk.Conv2D`, to the bit; the action planes are constant."""
  rng = np.random.default_rng(0)
  frames, actions = rng.random((3, 2, 5, 4, 2), np.float32), rng.integers(0, 3, (3, 2))
  stacked = jax.device_put(stack_history(frames, actions, (3,)))
  whole = hk.transform(lambda x: hk.Conv2D(6, 3, padding="VALID", name="conv")(x))
  split = hk.transform(lambda x: UnpaddedConv(6, 4)(x))
  key = jax.random.PRNGKey(0)
  params = whole.init(key, stacked)
  jax.tree_util.tree_map(np.testing.assert_array_equal, split.init(key, stacked), params)
  params["conv"]["b"] = np.arange(6, dtype=np.float32)
  got, want = (fast_jit(part.apply)(params, None, stacked) for part in (split, whole))
  np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_unpadded_conv_has_the_gradient_of_a_convolution():
  """On the CPU the gradient of the weights has its own formula."""
  rng = np.random.default_rng(1)
  x, g = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((3, 4, 6, 5), (3, 2, 4, 2)))
  w = jnp.asarray(rng.normal(size=(3, 3, 5, 2)), jnp.float32)
  (fast, fast_grads), (plain, grads) = (
    (out, gradient(g)) for out, gradient in (jax.vjp(f, x, w) for f in (_with_fast_gradient, _convolve))
  )
  np.testing.assert_array_equal(fast, plain)
  for found, want in zip(fast_grads, grads, strict=True):
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_pointwise_conv_equals_a_convolution_over_all_planes():
  """The parameters are those of `hk.Conv2D`, to the bit. Groups: cells, constant planes, columns."""
  rng = np.random.default_rng(0)
  cells = rng.random((3, 5, 4, 2), np.float32)
  constant = rng.random((3, 6), np.float32)
  columns = rng.random((3, 1, 4, 1), np.float32)
  planes = [cells, constant[:, None, None, :], columns]
  stacked = np.concatenate([np.broadcast_to(x, (3, 5, 4, x.shape[-1])) for x in planes], -1)
  cells, constant, columns, stacked = jax.device_put((cells, constant, columns, stacked))
  whole = hk.transform(lambda x: hk.Conv2D(7, 1, name="conv")(x))
  split = hk.transform(lambda *groups: PointwiseConv(7)(*groups))
  key = jax.random.PRNGKey(0)
  params = whole.init(key, stacked)
  jax.tree_util.tree_map(np.testing.assert_array_equal, split.init(key, cells, constant, columns), params)
  params["conv"]["b"] = np.arange(7, dtype=np.float32)
  got = fast_jit(split.apply)(params, None, cells, constant, columns)
  want = fast_jit(whole.apply)(params, None, stacked)
  np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_frame_norm_follows_the_batches():
  """Averages equal NumPy's. Training normalizes by the averages before the batch's update, as acting does."""
  fn = hk.transform_with_state(lambda x, training: FrameNorm(0.5)(x, training))
  rng = np.random.default_rng(0)
  background = rng.uniform(size=(5, 4, 2)).astype(np.float32)
  batches = [np.float32(background + 0.01 * rng.normal(size=(64, 5, 4, 2))) for _ in range(12)]
  init, apply = (fast_jit(part, static_argnames="training") for part in fn)
  _, state = init(None, batches[0], training=True)
  mean, variance = np.zeros((5, 4, 2)), 1.0
  # `init` applies the module once, but returns the state before that call.
  for t, batch in enumerate(batches):
    out, new_state = apply({}, state, None, batch, training=True)
    np.testing.assert_allclose(out, (batch - mean) / np.sqrt(variance + 1e-5), rtol=1e-3, atol=1e-3)
    acted, unchanged = apply({}, state, None, batch, training=False)
    np.testing.assert_array_equal(acted, out)
    assert jax.tree_util.tree_all(jax.tree_util.tree_map(np.array_equal, unchanged, state))
    keep = min(0.5, (1 + t) / (10 + t))
    variance = keep * variance + (1 - keep) * np.mean(np.square(batch - mean))
    mean = keep * mean + (1 - keep) * batch.mean(0)
    state = new_state
  np.testing.assert_allclose(mean, background, atol=0.01)
  assert 0.3 < np.square(np.asarray(apply({}, state, None, batches[0], training=False)[0])).mean() < 3


def initial_cosines(config, spec, length, history, passes):
  """Returns the mean cosine of two hidden states before any update, by whether frames are centred.

  The mean of the frames is that of this number of passes over the histories.
  """
  cosines, count = {}, len(history)
  for centred in (False, True):
    model = make_model(config.model_copy(update={"center_frames": centred}), spec, length, PHI)
    params, state = fast_jit(model.init)(jax.random.PRNGKey(0), history[:2])
    represent = fast_jit(lambda params, state, model=model: model.represent(params, state, history, True))
    for _ in range(passes):
      states, state = represent(params, state)
    unit = np.array(states).reshape(count, -1)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines[centred] = (np.square(unit.sum(0)).sum() - count) / (count * (count - 1))
  return cosines


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["conv_latent", "resnet"])
def test_centred_frames_keep_states_apart(kind):
  """Each 64 × 64 frame has one bright cell. Without centring, the hidden states are nearly equal."""
  spec = EnvSpec(name="t:t", frame_shape=(64, 64, 1), frame_dtype="uint8", num_env_actions=2)
  rng = np.random.default_rng(0)
  frames = np.full((32, 64, 64, 1), 0.4, np.float32)
  frames[np.arange(32), rng.integers(64, size=32), rng.integers(64, size=32)] = 1.0
  history = jnp.concatenate([frames, jnp.zeros((32, 64, 64, 3))], axis=-1)
  config = NetworkConfig(kind=kind, channels=4, latent_size=32, num_representation_blocks=1)
  cosines = initial_cosines(config, spec, 1, history, passes=40)
  assert cosines[False] > 0.95
  assert cosines[True] < 0.8


@pytest.mark.slow
def test_states_of_pong_differ_at_random_initialization():
  """256 successive histories of random play, with the configuration's network before any update.

  Without centred frames the hidden states are nearly equal: the ball and the paddles cover few cells.
  """
  pytest.importorskip("ale_py")
  config = load_config("atari/pong", [])
  length, count = config.targets.history_length, 256
  env = registry.make(config.env.name, 0, is_testing=False, **config.env.arguments)
  random, frames, actions = np.random.default_rng(0), [env.reset().observation.frame], [0]
  while len(frames) < count + length:
    action = int(random.integers(env.env_spec.num_env_actions))
    frames.append(env.step(action).observation.frame)
    actions.append(action + 1)  # 0 is the dummy
  env.close()
  windows = np.arange(count)[:, None] + np.arange(length)
  stacked = normalize_frame(np.stack(frames)[windows], "uint8")
  history = jnp.asarray(stack_history(stacked, np.array(actions)[windows], env.env_spec.policy_groups))
  cosines = initial_cosines(config.network, env.env_spec, length, history, passes=20)
  assert cosines[False] > 0.99
  assert cosines[True] < 0.4
