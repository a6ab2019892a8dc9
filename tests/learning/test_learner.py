"""Tests of the learner: priorities, published parameters, resuming and skipped updates."""

import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest

from moozi.acting.collector import HeldParameters
from moozi.core.errors import NotFiniteError
from moozi.core.pytree import map_fields, replace
from moozi.io.checkpoints import expected_of, load_checkpoint, save_checkpoint
from moozi.io.config import load_config
from moozi.learning.learner import zero_targets
from moozi.nn.model import Model
from moozi.ops.history import normalize_frame, stack_history
from moozi.run import build
from moozi.training.algorithms import algorithm_of
from tests.compilations import num_compilations
from tests.replay.replay_lanes import random_lanes, segment_of
from tests.run_events import assert_equal_trees
from tests.tiny_run import TINY


@pytest.fixture(scope="module")
def parts():
  """Returns a configuration, a spec, the targets of two updates, a learner and its initial state."""
  config = load_config(None, [*TINY, "learner.target_update_period=3", "learner.max_skipped_updates=3"])
  spec = build.env_spec(config)
  learner, replay = build.build_learner(config, spec), build.build_replay(config, spec)
  segment = segment_of(random_lanes(0, 4, 40, spec), 0, 40, spec)
  version = np.zeros((40, 4), np.int32)
  replay.add(replace(segment, acted_version=version, searched_version=version), first_lane=0)
  return config, spec, replay.sample_many(2, 16), learner, learner.get_state()


@pytest.fixture
def learner(parts):
  """Returns the learner, reset to its initial state; all tests share its compiled update."""
  *_, learner, state = parts
  learner.set_state(state)
  return learner


def value_errors(model: Model, params, net_state, spec, targets) -> np.ndarray:
  """Returns |value - z| at k = 0 for each target, computed with the model."""
  frames = normalize_frame(targets.frames[:, :-1], spec.frame_dtype)
  stacked = stack_history(frames, targets.history_actions[:, :-1], spec.policy_groups)
  output, _ = jax.jit(lambda *args: model.root_inference(*args, False))(params, net_state, stacked)
  return np.abs(np.asarray(model.transform.to_scalar(output.value_logits)) - targets.n_step_returns[:, 0])


@pytest.mark.slow
def test_priorities_load_no_jax_in_the_replay_process(parts, learner):
  """Unpickling priorities in the replay process imports their module, which must not import JAX."""
  _, _, targets, *_ = parts
  priorities, _ = learner.update(targets)
  code = "import pickle, sys; pickle.load(sys.stdin.buffer); assert 'jax' not in sys.modules"
  subprocess.run([sys.executable, "-c", code], input=pickle.dumps(priorities), check=True, timeout=120)


def test_priorities_belong_to_their_targets(parts, learner):
  config, spec, targets, *_ = parts
  (params, net_state), _ = learner.parameters()
  first = map_fields(lambda x: x[0], targets)
  expected = value_errors(build.build_model(config, spec), params, net_state, spec, first)
  priorities, metrics = learner.update(targets)
  np.testing.assert_array_equal(priorities.slot, targets.slot.reshape(-1))
  np.testing.assert_array_equal(priorities.sequence, targets.sequence.reshape(-1))
  assert priorities.delta.shape == (32,)
  # The priorities of the first update come from the initial parameters.
  np.testing.assert_allclose(priorities.delta[:16], expected, atol=1e-4)
  assert len(set(np.round(expected, 3))) > 1
  assert learner.learner_step == 2
  assert metrics["replay/target_age_updates"] == 0
  assert metrics["importance_ratio/max"] == targets.importance_ratio.max()
  assert "replay/importance_ratio_max" not in metrics


def test_published_parameters_do_not_change(parts, learner):
  """An update donates the learner's buffers to JAX, so published parameters must be copies."""
  published, before = learner.parameters()[0][0], jax.tree_util.tree_map(np.copy, learner.parameters()[0][0])
  learner.update(parts[2])
  assert_equal_trees(published, before)
  changed = learner.parameters()[0][0]
  assert any(
    not np.array_equal(a, b) for a, b in zip(*map(jax.tree_util.tree_leaves, (before, changed)), strict=True)
  )


def test_resume_from_a_checkpoint_is_exact_to_the_bit(parts, learner, tmp_path):
  config, spec, targets, *_ = parts
  learner.update(targets)
  meta = {"env_steps": 1, "learner_steps": 2} | expected_of(config, spec)
  path = save_checkpoint(tmp_path, "one", learner.get_state(), meta)
  learner.update(targets)
  expected = learner.get_state()

  learner.update(targets)
  template = algorithm_of(config).training_state_template(config, spec)
  state = load_checkpoint(path, template, expected_of(config, spec))
  learner.set_state(jax.device_get(state))
  assert learner.learner_step == 2
  learner.update(targets)
  assert learner.learner_step == 4
  assert_equal_trees(learner.get_state(), expected)


def test_the_target_version_is_the_step_of_the_copy(parts, learner):
  versions, firsts = [], []
  for _ in range(5):
    learner.update(parts[2])
    (params, _), version = learner.parameters("target")
    assert learner.parameters("target")[1] == version
    versions.append(version)
    firsts.append(np.asarray(jax.tree_util.tree_leaves(params)[-1]).copy())
  # The target network is copied every three steps. Before the first copy it equals the current network,
  # because searches with untrained parameters are worse than the stored ones.
  assert versions == [2, 3, 6, 6, 9]
  for before, after in ((0, 1), (1, 2), (3, 4)):
    assert not np.array_equal(firsts[before], firsts[after])
  np.testing.assert_array_equal(firsts[2], firsts[3])


def test_collectors_replace_the_discarded_target_network_after_a_rollback(parts, learner):
  collector = HeldParameters()
  for _ in range(3):
    learner.update(parts[2])
  version = learner.target_version
  collector.set_parameters(*learner.parameters("target"))
  learner.update(parts[2])
  assert learner.target_version == version == 6
  older = replace(parts[4], learner_step=np.int32(learner.learner_step))
  learner.roll_back(older)
  collector.set_parameters(*learner.parameters("target"))
  assert collector.version == 8
  assert_equal_trees(collector.variables[0], older.target_params)
  learner.update(parts[2])
  assert learner.target_version == 9
  # A resumed run counts from the copies again, as a run without a rollback does.
  learner.set_state(older)
  assert learner.target_version == 6


def test_skipped_updates_are_counted_and_limited(parts, learner):
  targets = parts[2]
  returns = targets.n_step_returns.copy()
  returns[1, 0, 0] = np.nan
  second_is_bad = replace(targets, n_step_returns=returns)
  both_are_bad = replace(targets, importance_ratio=np.full_like(targets.importance_ratio, np.inf))
  _, metrics = learner.update(second_is_bad)
  assert (metrics["faults/skipped_updates"], metrics["faults/not_finite_value"]) == (1, 1)
  _, metrics = learner.update(targets)
  assert metrics["faults/skipped_updates"] == 0
  assert not [name for name in metrics if "not_finite" in name]
  _, metrics = learner.update(both_are_bad)
  assert (metrics["faults/skipped_updates"], metrics["faults/not_finite_policy"]) == (2, 2)
  before = learner.parameters()[0][0]
  with pytest.raises(
    NotFiniteError, match=r"^loss/policy is not finite: 3 updates in a row.* step 6; learner\.max_"
  ) as raised:
    learner.update(both_are_bad)
  assert raised.value.counts == {"skipped_updates": 2, "not_finite_policy": 2}
  assert_equal_trees(before, learner.parameters()[0][0])


def test_not_finite_error_can_be_pickled():
  error = pickle.loads(pickle.dumps(NotFiniteError("loss/value is not finite", {"skipped_updates": 3})))
  assert error.counts == {"skipped_updates": 3}
  assert isinstance(error, NotFiniteError)
  assert str(error) == "loss/value is not finite"


def test_zero_targets_have_the_shapes_and_dtypes_of_replays(parts):
  config, spec, targets, *_ = parts
  zeros = zero_targets(config, spec, (2, 16))
  for name in targets.__dataclass_fields__:
    x, y = getattr(zeros, name), getattr(targets, name)
    assert (x.shape, x.dtype) == (y.shape, y.dtype), name


@pytest.mark.slow
def test_another_share_of_the_time_compiles_nothing(parts):
  _, spec, targets, *_ = parts
  rate = [f"learner.learning_rate.{text}" for text in ("kind=linear", "peak=0.01", "decay_steps=progress")]
  learner = build.build_learner(load_config(None, [*TINY, *rate, "max_wall_s=60"]), spec)
  learner.warm_up()
  with num_compilations() as count:
    for time_share, expected in ((0.25, 0.0075), (0.75, 0.0025), (1.0, 0.0)):
      learner.set_time_share(time_share)
      _, metrics = learner.update(targets)
      assert metrics["update/learning_rate"] == pytest.approx(expected)
  assert count() == 0


@pytest.mark.slow
def test_warm_up_compiles_the_update_and_changes_nothing(parts, learner):
  config, spec, targets, *_ = parts
  cold, warm = learner, build.build_learner(config, spec)
  warm.warm_up()
  assert_equal_trees(cold.get_state(), warm.get_state())
  with num_compilations() as count:
    warm.update(targets)
  assert count() == 0
  cold.update(targets)
  assert_equal_trees(cold.get_state(), warm.get_state())
