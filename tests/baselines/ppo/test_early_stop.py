"""Tests of the early stop by `target_kl`, against updates that are made one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.update import TrainingState
from moozi.baselines.ppo.actor_critic import make_network
from moozi.baselines.ppo.optimization import (
  init_state,
  make_batch,
  make_round,
  make_update,
  minibatch_indices,
)
from moozi.core.config.ppo import PPOConfig
from tests.baselines.ppo.test_optimization import changed, random_segment
from tests.envs.environments import NIM_SPEC
from tests.fast_jit import fast_jit
from tests.run_events import assert_equal_trees

CONFIG = PPOConfig(
  num_envs=3, segment_length=8, num_epochs=3, num_minibatches=2, network={"hidden_sizes": ()}
)
NETWORK = make_network(CONFIG.network, NIM_SPEC)
SEGMENT = random_segment(1, 8, 3)
RATE = jnp.float32(0.05)


@fast_jit
def initial_state() -> TrainingState:
  return init_state(NETWORK, CONFIG, NIM_SPEC, jax.random.PRNGKey(0))


@pytest.fixture(scope="module")
def one_by_one():
  """Returns the states after 0 … 6 updates, and the scalars of each update."""
  state = initial_state()
  _, order_key = jax.random.split(state.rng_key)
  batch, _ = fast_jit(lambda segment: make_batch(segment, CONFIG))(SEGMENT)
  update, states, scalars = fast_jit(make_update(NETWORK, CONFIG)), [state], []
  for row in np.asarray(fast_jit(lambda key: minibatch_indices(key, CONFIG))(order_key)):
    state, found, _ = update(state, batch, row, RATE)
    states.append(state)
    scalars.append(jax.device_get(found))
  return states, scalars


@pytest.mark.parametrize("num_epochs", [1, pytest.param(2, marks=pytest.mark.slow), 3])
def test_updates_after_the_stop_change_nothing(one_by_one, num_epochs):
  """The target is between the divergences at the ends of epochs."""
  states, scalars = one_by_one
  kl = [float(x["ppo/approx_kl"]) for x in scalars]
  at_ends = kl[1::2]
  assert 0 < at_ends[0] < at_ends[1] < at_ends[2]
  target = 0.99 * at_ends[num_epochs - 1]
  # A minibatch within an epoch does not stop the updates.
  assert max(kl[: 2 * num_epochs - 1]) > target
  state, output = make_round(NETWORK, changed(CONFIG, target_kl=target))(initial_state(), (SEGMENT, RATE))
  made = 2 * num_epochs
  assert int(state.learner_step) == made
  for field in ("params", "opt_state"):
    for a, b in zip(
      jax.tree_util.tree_leaves(getattr(state, field)),
      jax.tree_util.tree_leaves(getattr(states[made], field)),
      strict=True,
    ):
      np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
  metrics = output.metrics
  assert metrics["ppo/stopped_share"] == pytest.approx(1 - made / 6)
  assert metrics["faults/skipped_updates"] == 0
  assert (output.bad_term == -1).all()
  for name in ("ppo/approx_kl", "loss/total", "update/grad_norm"):
    expected = np.mean([x[name] for x in scalars[:made]])
    assert metrics[name] == pytest.approx(expected, rel=1e-4, abs=1e-6), name


def test_round_without_a_stop_is_the_same_to_the_bit():
  """A target that is never reached changes nothing; both rounds draw the next random key."""
  plain, output = make_round(NETWORK, CONFIG)(initial_state(), (SEGMENT, RATE))
  assert "ppo/stopped_share" not in output.metrics
  state, output = make_round(NETWORK, changed(CONFIG, target_kl=1e9))(initial_state(), (SEGMENT, RATE))
  assert output.metrics["ppo/stopped_share"] == 0
  assert_equal_trees(plain, state)


def test_scanned_round_stops_as_well(one_by_one, monkeypatch):
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  target = 0.99 * float(one_by_one[1][1]["ppo/approx_kl"])
  state, output = make_round(NETWORK, changed(CONFIG, target_kl=target))(initial_state(), (SEGMENT, RATE))
  assert int(state.learner_step) == 2
  assert output.metrics["ppo/stopped_share"] == pytest.approx(4 / 6)
