"""The parameter server's work: priorities row for row, copies of parameters, going on from a checkpoint."""

import pickle

import jax
import numpy as np
import pytest

from moozi.core.errors import NotFiniteError
from moozi.core.pytree import map_fields, replace
from moozi.io.checkpoints import expected_of, load_checkpoint, save_checkpoint
from moozi.io.config import load_config
from moozi.nn.model import Model
from moozi.ops.history import normalize_frame, stack_history
from moozi.run import build
from tests.tiny_run import TINY


@pytest.fixture(scope="module")
def parts():
  """Configuration, spec, and targets of two updates from a replay filled by acting."""
  config = load_config(None, list(TINY))
  spec = build.env_spec(config)
  learner, replay = build.build_learner(config, spec), build.build_replay(config, spec)
  collector = build.build_collector(config, spec, worker=0)
  collector.set_parameters(*learner.parameters())
  for _ in range(4):
    replay.add(collector.run(0)[0], first_lane=0)
  return config, spec, replay.sample_many(2, 16)


def value_errors(model: Model, params, net_state, spec, targets) -> np.ndarray:
  """|value - z| at k = 0, from the model itself."""
  frames = normalize_frame(targets.frames[:, :-1], spec.frame_dtype)
  stacked = stack_history(frames, targets.history_actions[:, :-1], spec.num_actions)
  output, _ = model.root_inference(params, net_state, stacked, False)
  return np.abs(np.asarray(model.transform.to_scalar(output.value_logits)) - targets.n_step_returns[:, 0])


def test_priorities_are_row_for_row_those_of_the_targets(parts):
  config, spec, targets = parts
  learner = build.build_learner(config, spec)
  first = map_fields(lambda x: x[:1], targets)
  params, net_state, _ = learner.parameters()
  expected = value_errors(
    build.build_model(config, spec), params, net_state, spec, map_fields(lambda x: x[0], targets)
  )
  priorities, metrics = learner.update(first)
  np.testing.assert_array_equal(priorities.slot, targets.slot[0])
  np.testing.assert_array_equal(priorities.sequence, targets.sequence[0])
  np.testing.assert_allclose(priorities.delta, expected, atol=1e-4)
  assert len(set(np.round(expected, 3))) > 1
  assert learner.learner_step == 1
  assert metrics["replay/target_age_updates"] == 0


def test_both_updates_of_a_call_come_back(parts):
  config, spec, targets = parts
  learner = build.build_learner(config, spec)
  priorities, _ = learner.update(targets)
  np.testing.assert_array_equal(priorities.slot, targets.slot.reshape(-1))
  assert priorities.delta.shape == (32,)
  assert learner.learner_step == 2


def test_published_parameters_do_not_change(parts):
  """The state's buffers are donated to each update; what was published must be a copy."""
  config, spec, targets = parts
  learner = build.build_learner(config, spec)
  published, before = learner.parameters()[0], jax.tree_util.tree_map(np.copy, learner.parameters()[0])
  learner.update(targets)
  for a, b in zip(*map(jax.tree_util.tree_leaves, (published, before)), strict=True):
    np.testing.assert_array_equal(a, b)
  changed = learner.parameters()[0]
  assert any(
    not np.array_equal(a, b) for a, b in zip(*map(jax.tree_util.tree_leaves, (before, changed)), strict=True)
  )


def test_a_checkpoint_goes_on_to_the_bit(parts, tmp_path):
  config, spec, targets = parts
  whole = build.build_learner(config, spec)
  whole.update(targets)
  meta = {"env_steps": 1, "learner_steps": 2} | expected_of(config, spec)
  path = save_checkpoint(tmp_path, "one", whole.get_state(), meta)
  whole.update(targets)

  restored = build.build_learner(config, spec)
  state = load_checkpoint(path, build.training_state_template(config, spec), expected_of(config, spec))
  restored.set_state(jax.device_get(state))
  restored.update(targets)
  assert restored.learner_step == 4
  for a, b in zip(*map(jax.tree_util.tree_leaves, (whole.get_state(), restored.get_state())), strict=True):
    np.testing.assert_array_equal(a, b)


def test_skipped_updates_are_counted_by_term_and_a_row_of_them_ends_the_run(parts):
  config, spec, targets = parts
  limited = config.model_copy(
    update={"learner": config.learner.model_copy(update={"max_skipped_updates": 3})}
  )
  learner = build.build_learner(limited, spec)
  returns = targets.n_step_returns.copy()
  returns[1, 0, 0] = np.nan
  second_is_bad, both_are_bad = (
    replace(targets, n_step_returns=returns),
    replace(targets, importance_ratio=np.full_like(targets.importance_ratio, np.inf)),
  )
  _, metrics = learner.update(second_is_bad)
  assert (metrics["faults/skipped_updates"], metrics["faults/not_finite_value"]) == (1, 1)
  _, metrics = learner.update(targets)
  assert metrics["faults/skipped_updates"] == 0
  assert not [name for name in metrics if "not_finite" in name]
  _, metrics = learner.update(both_are_bad)
  assert (metrics["faults/skipped_updates"], metrics["faults/not_finite_policy"]) == (2, 2)
  before = learner.parameters()[0]
  with pytest.raises(
    NotFiniteError, match=r"^loss/policy is not finite: 3 updates in a row.* step 6; learner\.max_"
  ):
    learner.update(both_are_bad)
  for a, b in zip(*map(jax.tree_util.tree_leaves, (before, learner.parameters()[0])), strict=True):
    np.testing.assert_array_equal(a, b)


def test_the_error_comes_through_another_process_whole():
  error = pickle.loads(pickle.dumps(NotFiniteError("loss/value is not finite")))
  assert isinstance(error, NotFiniteError)
  assert str(error) == "loss/value is not finite"
