"""Tests of the augmentation of frames, and of the loss and update that use it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.augment import FRAME_NORM, augment_frames
from moozi.agent.loss import make_loss
from moozi.agent.update import init_training_state, make_update
from moozi.core.config import Config, LearnerConfig, NetworkConfig, TargetsConfig
from moozi.core.pytree import replace
from moozi.core.spec import EnvSpec
from moozi.nn.model import make_model
from moozi.ops.scalar_transform import ScalarTransform
from tests.agent.tiny import linear_model, random_target
from tests.fast_jit import fast_jit

KEY = jax.random.PRNGKey(3)
PLANES = np.random.default_rng(0).random((6, 7, 9, 3)).astype(np.float32)


AUGMENT = fast_jit(augment_frames, static_argnums=(2, 3))


def augment(planes, *args):
  return np.asarray(AUGMENT(planes, *args))


def shifted(image, down, right):
  """Returns image[y + down, x + right], with indices clipped to the image."""
  height, width, _ = image.shape
  rows = np.clip(np.arange(height) + down, 0, height - 1)
  columns = np.clip(np.arange(width) + right, 0, width - 1)
  return image[rows][:, columns]


@pytest.mark.slow
@pytest.mark.parametrize("mean", [None, np.random.default_rng(1).random((7, 9, 3)).astype(np.float32)])
def test_each_sample_is_shifted_by_its_own_offset(mean):
  net_state = {} if mean is None else {FRAME_NORM: {"mean": mean}}
  mean = 0.0 if mean is None else mean
  out = augment(PLANES, net_state, 2, 0.0, KEY)
  offsets = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]
  found = [
    [at for at in offsets if np.allclose(shifted(x - mean, *at) + mean, y, atol=1e-6)]
    for x, y in zip(PLANES, out, strict=True)
  ]
  assert all(len(at) == 1 for at in found)
  assert len({at[0] for at in found}) > 2
  np.testing.assert_array_equal(augment(PLANES, net_state, 2, 0.0, KEY), out)
  assert not np.array_equal(augment(PLANES, net_state, 2, 0.0, jax.random.PRNGKey(4)), out)


def test_shifts_are_uniform():
  planes = np.broadcast_to(np.arange(9, dtype=np.float32)[:, None, None], (3000, 9, 9, 1))
  downs = augment(planes, {}, 2, 0.0, KEY)[:, 4, 4, 0] - 4
  # 600 of each are expected; 110 is five standard deviations.
  assert np.abs(np.array([(downs == d).sum() for d in range(-2, 3)]) - 600).max() < 110


def test_jitter_scales_the_difference_from_the_mean():
  mean = np.full((7, 9, 3), 0.25, np.float32)
  out = augment(PLANES, {FRAME_NORM: {"mean": mean}}, 0, 0.05, KEY)
  factors = (out - mean) / (PLANES - mean)
  assert np.ptp(factors, axis=(1, 2, 3)).max() < 1e-2  # one factor for all cells of a sample
  assert np.abs(factors[:, 0, 0, 0] - 1).max() <= 0.1 + 1e-4
  assert len(np.unique(factors[:, 0, 0, 0].round(4))) == 6


# --- in the loss and the update -------------------------------------------------------------------------

SPEC = EnvSpec(name="t:t", frame_shape=(5, 5, 1), frame_dtype="uint8", num_env_actions=2)
TARGETS = TargetsConfig(unroll_steps=2, history_length=2, n_step=2)
MODEL = linear_model(3)


def make_target():
  target = random_target(np.random.default_rng(0), 4, 2, 2, SPEC.frame_shape, 3)
  frames = np.random.default_rng(0).integers(0, 255, target.frames.shape).astype(np.uint8)
  return replace(target, frames=frames, consistency_mask=np.ones(4, np.float32))


def make_state(**learner):
  config = Config(targets=TARGETS.model_dump(), learner=learner)
  return init_training_state(MODEL, config, SPEC, KEY), make_update(MODEL, config, SPEC)


@pytest.mark.slow
def test_augmentation_follows_from_the_state():
  """A resumed run therefore augments as the uninterrupted run."""
  state, update = make_state(max_shift=1, learning_rate={"peak": 1e-9})
  update, target = fast_jit(update), make_target()

  def loss_of(state):
    return float(update(state, target)[1].metrics["loss/policy"])

  later = replace(state, learner_step=state.learner_step + 1)
  other = replace(state, rng_key=jax.random.PRNGKey(9))
  assert loss_of(state) == loss_of(jax.tree_util.tree_map(np.asarray, state))
  assert len({loss_of(s) for s in (state, later, other)}) == 3


def test_augmentation_needs_a_key():
  state, _ = make_state()
  loss = fast_jit(make_loss(MODEL, LearnerConfig(max_shift=1), TARGETS, "uint8"))
  with pytest.raises(ValueError, match="rng_key: must be a random key"):
    loss(state.params, state.params, state.net_state, make_target())


@pytest.mark.slow
def test_consistency_warmup():
  state, _ = make_state()
  args = state.params, state.params, state.net_state, make_target()
  plain = fast_jit(make_loss(MODEL, LearnerConfig(consistency_coef=2.0), TARGETS, "uint8"))
  off = fast_jit(make_loss(MODEL, LearnerConfig(consistency_coef=0.0), TARGETS, "uint8"))
  warm = LearnerConfig(consistency_coef=2.0, consistency_warmup_steps=4)
  warm = fast_jit(make_loss(MODEL, warm, TARGETS, "uint8"))
  whole, without = plain(*args)[0], off(*args)[0]
  for step, share in ((0, 0.25), (1, 0.5), (3, 1.0), (100, 1.0)):
    added = warm(*args, jnp.int32(step))[0] - without
    np.testing.assert_allclose(added, share * (whole - without), rtol=1e-4)


def test_running_mean_is_named_as_the_models():
  spec = EnvSpec(name="t:t", frame_shape=(4, 4, 1), frame_dtype="uint8", num_env_actions=2)
  network = NetworkConfig(kind="mlp", latent_size=4, head_size=4, center_frames=True)
  model = make_model(network, spec, 2, ScalarTransform(-1, 1, 0.001))
  history = jax.ShapeDtypeStruct((1, 4, 4, 2 * 4), jnp.float32)
  _, net_state = jax.eval_shape(model.init, KEY, history)
  assert net_state[FRAME_NORM]["mean"].shape == (4, 4, 2)
