"""Tests of the root inference that is averaged over symmetries."""

import dataclasses

import jax
import numpy as np
import pytest

from moozi.agent.symmetry_average import averaged
from moozi.core.config import PlannerConfig, TargetsConfig
from moozi.core.spec import EnvSpec
from moozi.core.symmetry import board_symmetries
from moozi.nn.model import ModelOutput
from moozi.ops.history import stack_history
from tests.agent.tiny import table_model

SPEC = EnvSpec(
  name="test:columns",
  frame_shape=(1, 3, 2),
  frame_dtype="float32",
  num_env_actions=3,
  symmetries=board_symmetries(("mirror",), (1, 3, 2), 3, "columns"),
)
TARGETS = TargetsConfig(history_length=2)
MIRROR = np.array([0, 3, 2, 1])


def linear_model():
  def root(params, net_state, stacked, is_training):
    flat = stacked.reshape(len(stacked), -1)
    value, policy = flat @ params[0], flat @ params[1]
    return ModelOutput(
      hidden_state=flat, value_logits=value, reward_logits=value, policy_logits=policy
    ), net_state

  return dataclasses.replace(table_model(4), root_inference=root)


@pytest.fixture(name="case")
def _case():
  random = np.random.default_rng(0)
  frames = random.normal(size=(5, 2, 1, 3, 2)).astype(np.float32)
  actions = random.integers(0, 4, (5, 2))
  stacked = stack_history(frames, actions, (4,))
  mirrored = stack_history(frames[:, :, :, ::-1], MIRROR[actions], (4,))
  size = stacked[0].size
  return [random.normal(size=(size, n)).astype(np.float32) for n in (11, 4)], stacked, mirrored


def softmax(x):
  return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def test_root_is_the_mean_over_the_board_and_its_mirror_image(case):
  params, stacked, mirrored = case
  model = linear_model()
  root = averaged(model, PlannerConfig(average_symmetries=True), TARGETS, SPEC).root_inference
  found, _ = jax.device_get(jax.jit(root, static_argnums=3)(params, {}, stacked, False))
  own, _ = model.root_inference(params, {}, stacked, False)
  other, _ = model.root_inference(params, {}, mirrored, False)
  policy = (softmax(own.policy_logits) + softmax(other.policy_logits)[:, MIRROR]) / 2
  value = (softmax(own.value_logits) + softmax(other.value_logits)) / 2
  np.testing.assert_allclose(softmax(found.policy_logits), policy, atol=1e-6)
  np.testing.assert_allclose(softmax(found.value_logits), value, atol=1e-6)
  np.testing.assert_array_equal(found.hidden_state, own.hidden_state)


@pytest.mark.parametrize(
  ("planner", "spec"),
  [
    (PlannerConfig(), SPEC),
    (PlannerConfig(average_symmetries=True), dataclasses.replace(SPEC, symmetries=())),
  ],
)
def test_off_or_without_symmetries_the_model_is_unchanged(planner, spec):
  model = linear_model()
  assert averaged(model, planner, TARGETS, spec) is model
