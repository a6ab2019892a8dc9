"""Tests of the update: optimizer, target network, skipped updates, and several updates in one call."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from moozi.agent.loss import make_loss
from moozi.agent.update import (
  TERMS,
  init_training_state,
  make_learning_rate,
  make_optimizer,
  make_update,
  make_update_many,
  playing_state,
)
from moozi.core.config import Config, LearnerConfig, LearningRateConfig
from moozi.core.config.budget import takes_time_share
from moozi.core.pytree import map_fields, replace
from moozi.core.spec import EnvSpec
from tests.agent.tiny import linear_model, random_target
from tests.fast_jit import fast_jit

SPEC = EnvSpec(name="t:t", frame_shape=(2, 2, 1), frame_dtype="bool", num_env_actions=2)
PERIOD = 3
CONFIG = Config(
  targets={"unroll_steps": 2, "history_length": 2, "n_step": 2},
  learner={
    "learning_rate": {"kind": "linear", "peak": 0.01, "end": 0.002, "warmup_steps": 2, "decay_steps": 10},
    "weight_decay": 0.1,
    "max_grad_norm": 0.5,
    "target_update_period": PERIOD,
    "consistency_from_target": True,
  },
)
MODEL = linear_model(3)
UPDATE = fast_jit(make_update(MODEL, CONFIG, SPEC))


@functools.cache
def initial_state():
  return init_training_state(MODEL, CONFIG, SPEC, jax.random.PRNGKey(0))


def make_target(seed=0):
  target = random_target(np.random.default_rng(seed), 4, 2, 2, SPEC.frame_shape, 3)
  return replace(target, consistency_mask=np.ones(4, np.float32))


def equal(a, b):
  same = jax.tree_util.tree_map(np.array_equal, a, b)
  return all(jax.tree_util.tree_leaves(same))


def test_initial_state_has_separate_target_params():
  state = initial_state()
  assert state.rng_key.dtype == jnp.uint32
  assert state.learner_step.dtype == jnp.int32
  assert equal(state.params, state.target_params)
  pairs = zip(
    jax.tree_util.tree_leaves(state.params), jax.tree_util.tree_leaves(state.target_params), strict=True
  )
  assert all(a.unsafe_buffer_pointer() != b.unsafe_buffer_pointer() for a, b in pairs)


def test_updates_equal_clipped_adamw():
  learner = CONFIG.learner
  reference = optax.chain(
    optax.clip_by_global_norm(0.5),
    optax.adamw(
      make_learning_rate(learner.learning_rate, learner.learning_rate.decay_steps), weight_decay=0.1
    ),
  )
  grad_fn = fast_jit(jax.grad(make_loss(MODEL, learner, CONFIG.targets, "bool"), has_aux=True))
  state = initial_state()
  params, opt_state = state.params, reference.init(state.params)

  @fast_jit
  def reference_update(grads, opt_state, params):
    updates, opt_state = reference.update(grads, opt_state, params)
    norms = {"grad": optax.tree.norm(grads), "update": optax.tree.norm(updates)}
    params = optax.apply_updates(params, updates)
    return params, opt_state, norms | {"param": optax.tree.norm(params)}

  for seed in range(4):
    grads, _ = grad_fn(params, state.target_params, state.net_state, make_target(seed))
    params, opt_state, norms = reference_update(grads, opt_state, params)
    state, output = UPDATE(state, make_target(seed))
    jax.tree_util.tree_map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), state.params, params
    )
    assert output.metrics["update/grad_norm"] == pytest.approx(float(norms["grad"]), rel=1e-4)
    assert output.metrics["update/update_norm"] == pytest.approx(float(norms["update"]), rel=1e-3)
    assert output.metrics["update/param_norm"] == pytest.approx(float(norms["param"]), rel=1e-4)
    assert output.metrics["faults/skipped_updates"] == 0
  assert int(state.learner_step) == 4


def test_weight_decay_is_adamw_on_matrices_only():
  params = {"w": jnp.ones((2, 2)), "b": jnp.ones(2)}
  zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
  for kind, decayed in (("adamw", 0.1), ("adam", 0.0)):
    optimizer = make_optimizer(LearnerConfig(optimizer=kind, weight_decay=0.1))
    direction, _ = fast_jit(lambda o=optimizer: o.update(zeros, o.init(params), params))()
    np.testing.assert_allclose(direction["w"], np.full((2, 2), decayed), rtol=1e-6)
    np.testing.assert_array_equal(direction["b"], np.zeros(2))


@pytest.mark.parametrize(
  ("config", "table"),
  [
    ({"peak": 0.1}, {0: 0.1, 1000: 0.1}),
    ({"peak": 0.1, "warmup_steps": 4}, {0: 0.025, 1: 0.05, 3: 0.1, 4: 0.1, 99: 0.1}),
    ({"kind": "linear", "peak": 0.1, "end": 0.02, "decay_steps": 8}, {0: 0.1, 4: 0.06, 8: 0.02, 99: 0.02}),
    ({"kind": "cosine", "peak": 0.1, "end": 0.02, "decay_steps": 8}, {0: 0.1, 4: 0.06, 8: 0.02, 99: 0.02}),
    (
      {"kind": "linear", "peak": 0.1, "end": 0.0, "decay_steps": 8, "warmup_steps": 2},
      {0: 0.05, 2: 0.1, 6: 0.05, 10: 0.0},
    ),
  ],
)
def test_learning_rate_tables(config, table):
  schedule = fast_jit(make_learning_rate(LearningRateConfig(**config), config.get("decay_steps")))
  for step, rate in table.items():
    assert float(schedule(np.int32(step))) == pytest.approx(rate, abs=1e-7), step


@pytest.mark.parametrize(
  ("config", "table"),
  [
    (
      {"kind": "linear", "peak": 0.1, "end": 0.02, "decay_steps": 8},
      {(0, 0): 0.1, (2, 0.5): 0.06, (4, 0.25): 0.06, (0, 0.75): 0.04, (0, 1): 0.02, (99, 0): 0.02},
    ),
    (
      {"kind": "cosine", "peak": 0.1, "end": 0.02, "decay_steps": 8},
      {(0, 0): 0.1, (1, 0.5): 0.06, (4, 0.5): 0.06, (3, 1): 0.02, (8, 0.25): 0.02},
    ),
    # The lower one of the warm-up and the decay
    (
      {"kind": "linear", "peak": 0.1, "end": 0.0, "decay_steps": 8, "warmup_steps": 2},
      {(0, 0): 0.05, (0, 0.5): 0.05, (0, 0.75): 0.025, (1, 0.25): 0.075, (6, 0.25): 0.05, (0, 1): 0.0},
    ),
  ],
)
def test_learning_rate_by_time(config, table):
  schedule = fast_jit(make_learning_rate(LearningRateConfig(**config), config["decay_steps"]))
  for (step, time_share), rate in table.items():
    found = float(schedule(np.int32(step), np.float32(time_share)))
    assert found == pytest.approx(rate, abs=1e-7), (step, time_share)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("warmup_steps", [0, 5])
def test_time_only_lowers_the_learning_rate(kind, warmup_steps):
  """Behind the steps, the share of the time changes nothing; ahead of them, it lowers the rate."""
  config = LearningRateConfig(kind=kind, peak=0.1, end=0.01, warmup_steps=warmup_steps, decay_steps=20)
  schedule, steps = fast_jit(make_learning_rate(config, 20)), np.arange(40, dtype=np.int32)
  plain = schedule(steps)
  made = np.clip((steps - warmup_steps) / 20, 0, 1).astype(np.float32)
  for time_share in (np.float32(0), 0.5 * made, made):
    np.testing.assert_allclose(schedule(steps, time_share), plain, rtol=1e-6)
  rates = np.array([schedule(steps, np.float32(share)) for share in np.linspace(0, 1, 21)])
  assert (np.diff(rates, axis=0) <= 1e-9).all()
  np.testing.assert_allclose(rates[-1, warmup_steps:], 0.01, rtol=1e-6)


def test_update_without_a_time_limit_compiles_as_by_the_budget():
  texts = []
  for decay_steps in ("budget", "progress"):
    rate = LearningRateConfig(kind="cosine", warmup_steps=2, decay_steps=decay_steps)
    config = CONFIG.model_copy(
      update={"learner": CONFIG.learner.model_copy(update={"learning_rate": rate}), "max_wall_s": None}
    )
    assert not takes_time_share(config)
    update = jax.jit(make_update(MODEL, config, SPEC))
    texts.append(update.lower(initial_state(), make_target()).as_text())
  assert texts[0] == texts[1]


def test_target_params_are_copied_at_the_period():
  state = initial_state()
  held = state.target_params
  for step in range(1, 2 * PERIOD + 2):
    state, _ = UPDATE(state, make_target(step))
    if step < PERIOD:
      # Before the first multiple of the period, the target network is copied at each step.
      assert equal(state.target_params, state.params)
      held = state.target_params
    elif step % PERIOD == 0:
      assert equal(state.target_params, state.params)
      assert not equal(state.target_params, held)
      held = state.target_params
    else:
      assert equal(state.target_params, held)
      assert not equal(state.target_params, state.params)
  moved = jax.tree_util.tree_map(lambda x: np.asarray(x)[::-1] + np.float32(0.3), state.target_params)
  other = replace(state, target_params=moved)
  losses = [UPDATE(s, make_target())[1].metrics["loss/consistency"] for s in (state, other)]
  assert losses[0] != losses[1]


def test_target_params_are_averaged():
  """The decay min(0.25, (1 + t) / (10 + t)) is 2/11 at update 1 and 0.25 from update 2 on."""
  config = CONFIG.model_copy(update={"learner": CONFIG.learner.model_copy(update={"target_decay": 0.25})})
  update, state = fast_jit(make_update(MODEL, config, SPEC)), initial_state()
  mean = jax.device_get(state.target_params)
  for step, decay in enumerate([2 / 11, 0.25, 0.25, 0.25], start=1):
    state, _ = update(state, make_target(step))
    params = jax.device_get(state.params)
    mean = jax.tree_util.tree_map(lambda m, p, d=decay: d * m + (1 - d) * p, mean, params)
    jax.tree_util.tree_map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), state.target_params, mean
    )
  before = state.params
  state, _ = update(state, bad_target("rewards", np.nan))
  assert equal(state.params, before)
  assert all(np.isfinite(leaf).all() for leaf in jax.tree_util.tree_leaves(state.target_params))


@dataclasses.dataclass
class ParametersOnly:
  params: str = "params"
  target_params: str | None = None


def test_playing_state_has_the_network_of_the_evaluation():
  target = Config(evaluation={"network": "target"})
  full = ParametersOnly(target_params="target")
  assert playing_state(full, Config()) is full
  assert playing_state(full, target).params == "target"
  assert playing_state(ParametersOnly(), target).params == "params"


def bad_target(field, value, seed=1):
  target = make_target(seed)
  bad = np.array(getattr(target, field))
  bad[0] = value
  return replace(target, **{field: bad}, unroll_mask=np.ones((4, 3), np.float32))


@pytest.mark.parametrize(
  ("field", "value", "term"),
  [
    ("n_step_returns", np.nan, "loss/value"),
    ("rewards", np.nan, "loss/reward"),
    ("action_probs", np.inf, "loss/policy"),
    ("importance_ratio", np.inf, "loss/policy"),
    ("consistency_mask", np.nan, "loss/consistency"),
  ],
)
def test_non_finite_loss_is_skipped(field, value, term):
  state, _ = UPDATE(initial_state(), make_target())
  after, output = UPDATE(state, bad_target(field, value))
  assert output.metrics["faults/skipped_updates"] == 1
  assert TERMS[int(output.bad_term)] == term
  assert output.metrics["update/update_norm"] == 0
  assert equal(after.params, state.params)
  assert equal(after.target_params, state.target_params)
  assert equal(after.opt_state, state.opt_state)
  assert equal(after.net_state, state.net_state)
  assert int(after.learner_step) == 2
  good, output = UPDATE(after, make_target(2))
  assert output.metrics["faults/skipped_updates"] == 0
  assert int(output.bad_term) == -1
  assert not equal(good.params, state.params)


def test_non_finite_value_error_is_kept():
  """The error stays NaN so that replay rejects it; replay would accept 0 as a low priority."""
  _, output = UPDATE(initial_state(), bad_target("n_step_returns", np.nan))
  assert np.isnan(output.value_error[0])
  assert np.isfinite(output.value_error[1:]).all()


def test_non_finite_gradient_of_finite_loss_is_skipped():
  """√0 is finite but its gradient is infinite; multiplied by a mask of 0 it is NaN."""

  def root(params, net_state, history, is_training):
    output, net_state = MODEL.root_inference(params, net_state, history, is_training)
    zero = 0.0 * params["v"][0, 0]
    return replace(
      output, value_logits=output.value_logits + jnp.where(zero > 0, jnp.sqrt(zero), 0.0)
    ), net_state

  model = dataclasses.replace(MODEL, root_inference=root)
  state = initial_state()
  after, output = fast_jit(make_update(model, CONFIG, SPEC))(state, make_target())
  assert np.isfinite(output.metrics["loss/total"])
  assert TERMS[int(output.bad_term)] == "update/grad_norm"
  assert equal(after.params, state.params)
  assert equal(after.opt_state, state.opt_state)


def test_many_non_finite_updates_are_all_skipped():
  """`optax.apply_if_finite`, in contrast, applies a non-finite update after a maximum number of skips."""
  state, _ = UPDATE(initial_state(), make_target())
  after = state
  for _ in range(30):
    after, _ = UPDATE(after, bad_target("rewards", np.nan))
  assert equal(after.params, state.params)
  assert equal(after.opt_state, state.opt_state)
  # The target network was copied at this step, from finite parameters.
  assert equal(after.target_params, state.params)


@pytest.mark.slow
def test_update_many_equals_single_updates():
  targets = [make_target(seed) for seed in range(4)]
  bad = replace(targets[2], n_step_returns=np.full_like(targets[2].n_step_returns, np.nan))
  targets[2] = bad
  state, errors, metrics = initial_state(), [], []
  for target in targets:
    state, output = UPDATE(state, target)
    errors.append(output.value_error)
    metrics.append(output.metrics)
  stacked = map_fields(lambda *xs: np.stack(xs), *targets)
  donated = jax.tree_util.tree_map(jnp.copy, initial_state())
  many, output = make_update_many(MODEL, CONFIG, SPEC)(donated, stacked)
  assert output.bad_term.tolist() == [-1, -1, TERMS.index("loss/value"), -1]
  # A metric is the mean over the three updates that were made, also where that of the third is finite.
  made = [m for m in metrics if not m["faults/skipped_updates"]]
  assert np.isfinite(metrics[2]["loss/policy"])
  for name in ("loss/total", "loss/policy", "update/update_norm", "update/learning_rate"):
    mean = float(np.mean([m[name] for m in made]))
    assert output.metrics[name] == pytest.approx(mean, rel=1e-5), name
  jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), many, state)
  np.testing.assert_allclose(output.value_error, np.stack(errors), rtol=1e-5)
  assert output.metrics["faults/skipped_updates"] == 1
  largest = max(float(m["importance_ratio/max"]) for m in metrics)
  assert output.metrics["importance_ratio/max"] == pytest.approx(largest)


def test_learns_one_batch_deterministically():
  target = replace(make_target(), unroll_mask=np.ones((4, 3), np.float32))
  ends = []
  for _ in range(2):
    state = initial_state()
    first = None
    for _ in range(60):
      state, output = UPDATE(state, target)
      first = first or float(output.metrics["loss/total"])
    ends.append(state)
    assert float(output.metrics["loss/total"]) < 0.8 * first
  assert equal(ends[0], ends[1])
