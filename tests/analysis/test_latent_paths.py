"""Tests of encoded and unrolled states, with a model whose latent space is known."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from moozi.analysis.latent_paths import latent_paths
from moozi.core.search_record import PlayedStep
from moozi.core.spec import EnvSpec

SPEC = EnvSpec(name="test:line", frame_shape=(1, 6, 1), frame_dtype="bool", num_env_actions=2)


def make_steps(cells, actions):
  steps = []
  for t, (cell, action) in enumerate(zip(cells, actions, strict=True)):
    frame = np.zeros(SPEC.frame_shape, bool)
    frame[0, cell, 0] = True
    steps.append(
      PlayedStep(
        frame=frame,
        picture=None,
        to_play=0,
        seat=None,
        reward=0.0,
        total=0.0,
        legal_actions_mask=np.ones(3, bool),
        is_first=t == 0,
        is_last=t == len(cells) - 1,
        is_truncated=False,
        is_agents=True,
        action=action,
        root_value=0.0,
        action_probs=np.zeros(3),
      )
    )
  return steps


def make_model(speed):
  """Returns a model that encodes cell i as (i, 0); action 2 adds `speed` to i, action 1 subtracts it."""

  def represent(params, net_state, stacked, is_training):
    # Plane 1 of the stacked history is the newest frame.
    place = (stacked[:, 0, :, 1] * jnp.arange(6)).sum(axis=-1)
    return jnp.stack([place, jnp.zeros_like(place)], axis=-1), net_state

  def recurrent_inference(params, net_state, state, action, is_training):
    move = jnp.where(action == 2, speed, -speed)
    output = types.SimpleNamespace(hidden_state=state + jnp.stack([move, 0.0 * move], axis=-1))
    return output, net_state

  # Converts the output to a ModelOutput, because jit returns only pytrees.
  def trans(params, net_state, state, action, is_training):
    output, net_state = recurrent_inference(params, net_state, state, action, is_training)
    from moozi.nn.model import ModelOutput

    zeros = jnp.zeros(1)
    return (
      ModelOutput(
        hidden_state=output.hidden_state, value_logits=zeros, reward_logits=zeros, policy_logits=zeros
      ),
      net_state,
    )

  return types.SimpleNamespace(represent=represent, recurrent_inference=trans)


STEPS = make_steps([1, 2, 3, 2, 3, 4], [2, 2, 1, 2, 2, 0])


def paths_of(speed, unroll_steps=3, max_starts=10):
  return latent_paths(make_model(speed), ({}, {}), STEPS, SPEC, 2, unroll_steps, max_starts)


def test_encoded_states():
  np.testing.assert_array_equal(paths_of(1.0).encoded[:, 0], [1, 2, 3, 2, 3, 4])


def test_exact_model_has_no_drift():
  paths = paths_of(1.0)
  assert paths.starts.tolist() == [0, 1, 2, 3, 4]
  np.testing.assert_array_equal(paths.unrolled[0, :, 0], [1, 2, 3, 2])
  drift = paths.drift()
  assert np.nanmax(drift) == 0.0
  # The drift is NaN after the episode's last step.
  assert np.isnan(drift).sum(axis=1).tolist() == [0, 0, 0, 1, 2]


def test_drift_is_distance_over_spread():
  paths = paths_of(3.0)
  spread = np.std([1, 2, 3, 2, 3, 4])
  assert paths.spread == pytest.approx(spread)
  # From step 0, the model predicts cells 4, 7, 4; the encoded cells are 2, 3, 2.
  np.testing.assert_allclose(paths.drift()[0], np.array([0, 2, 4, 2]) / spread)
  np.testing.assert_allclose(paths.still_drift()[0], np.array([0, 1, 2, 1]) / spread)
  assert np.isnan(paths.still_drift()[4]).sum() == 2


def test_starts_are_evenly_spaced():
  assert paths_of(1.0, max_starts=3).starts.tolist() == [0, 2, 4]
  assert paths_of(1.0, max_starts=1).starts.tolist() == [0]


def test_more_steps_than_a_batch():
  cells = [1, 2] * 50
  paths = latent_paths(make_model(1.0), ({}, {}), make_steps(cells, [2, 1] * 50), SPEC, 2, 2, 5)
  np.testing.assert_array_equal(paths.encoded[:, 0], cells)


def test_single_step():
  paths = latent_paths(make_model(1.0), ({}, {}), STEPS[-1:], SPEC, 2, 2, 5)
  assert paths.unrolled.shape == (1, 3, 2)
  assert paths.spread == 0.0
  assert paths.drift()[0, 0] == 0.0


@pytest.mark.parametrize(("steps", "unroll_steps", "max_starts"), [([], 1, 1), (STEPS, 0, 1), (STEPS, 1, 0)])
def test_invalid_arguments_raise(steps, unroll_steps, max_starts):
  with pytest.raises(ValueError, match="each must be at least 1"):
    latent_paths(make_model(1.0), ({}, {}), steps, SPEC, 2, unroll_steps, max_starts)
