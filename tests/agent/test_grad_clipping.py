"""Tests of clipping by the running mean of squares: a table by hand, order, skipped updates, saved state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.finite import guarded_step
from moozi.agent.grad_clipping import clip_by_second_moment, clipping
from moozi.agent.update import TrainingState, make_optimizer
from moozi.core.config import LearnerConfig
from moozi.core.flat_state import tree_of_state, tree_state
from tests.fast_jit import fast_jit

# With β = 0.999: the gradient of each update, and what it is clipped to with a factor of 1.
#   v₁ = 1; v₂ = (0.999 · 1 + 9) / 1.999; v₃ = (0.999² · 1 + 0.999 · 9 + 9) / 2.997001
TABLE = [(1.0, 1.0), (3.0, 2.236543), (-3.0, -2.517141), (0.5, 0.5)]


def clip_all(factor, gradients):
  """Returns what each gradient becomes, one after the other."""
  optimizer = clip_by_second_moment(factor)
  step = fast_jit(optimizer.update)
  state, out = optimizer.init(gradients[0]), []
  for gradient in gradients:
    clipped, state = step(gradient, state)
    out.append(clipped)
  return out, state


def test_entries_are_clipped_as_in_a_table_by_hand():
  """Each entry has its own bound; one that is always 0 stays 0."""
  rows = [{"w": jnp.array([g, 0.0, 10.0 * g, 1.0]), "b": jnp.array(g)} for g, _ in TABLE]
  out, state = clip_all(1.0, rows)
  for (_, expected), row in zip(TABLE, out, strict=True):
    np.testing.assert_allclose(row["w"], [expected, 0.0, 10 * expected, 1.0], rtol=1e-5)
    np.testing.assert_allclose(row["b"], expected, rtol=1e-5)
  # Unclipped gradients make v: 0.001 · (0.999³ + 0.999² · 9 + 0.999 · 9 + 0.25).
  np.testing.assert_allclose(state.nu["b"], 0.0192199, rtol=1e-4)
  assert int(state.count) == 4


def test_a_sudden_gradient_is_reduced_with_a_factor_of_five():
  out, _ = clip_all(5.0, [jnp.array([1.0])] * 99 + [jnp.array([100.0])])
  assert all(x[0] == 1 for x in out[:-1])
  # v = (0.094251 + 10) / 0.095208, where 0.095208 = 1 - 0.999^100.
  np.testing.assert_allclose(out[-1], 5 * np.sqrt((0.0952079 - 0.001 + 10.0) / 0.0952079), rtol=1e-3)


def test_a_factor_beyond_float32_clips_nothing():
  """An entry whose gradients are all 0 stays 0."""
  gradients = [jnp.array([0.0, g]) for g, _ in TABLE]
  out, _ = clip_all(1e300, gradients)
  np.testing.assert_array_equal(out, gradients)


def test_entries_are_clipped_before_the_norm():
  gradients = [{"a": jnp.array([3.0, 4.0])}, {"a": jnp.array([9.0, 4.0])}]
  entries, _ = clip_all(1.0, gradients)
  optimizer = clipping(1.0, 0.5)
  state = optimizer.init(gradients[0])
  for gradient, entry in zip(gradients, entries, strict=True):
    clipped, state = optimizer.update(gradient, state)
    np.testing.assert_allclose(clipped["a"], 0.5 * entry["a"] / np.linalg.norm(entry["a"]), rtol=1e-6)


def test_adam_keeps_its_place_in_the_state():
  """Surgery finds its moments by the place."""
  params = {"w": jnp.ones((2, 2))}
  states = [make_optimizer(LearnerConfig(max_grad_rms=factor)).init(params) for factor in (None, 5.0)]
  plain, clipped = (tree_state(state) for state in states)
  assert plain.keys() == {"1/count", "1/mu/w", "1/nu/w"}
  assert clipped.keys() == {*plain, "0/0/count", "0/0/nu/w"}
  assert tree_state(tree_of_state(states[1], clipped)).keys() == clipped.keys()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_skipped_update_does_not_change_the_moments(bad):
  optimizer = make_optimizer(LearnerConfig(max_grad_rms=5.0))
  params = {"w": jnp.ones(2)}
  state = TrainingState(
    params=params,
    target_params=None,
    net_state={},
    opt_state=optimizer.init(params),
    learner_step=jnp.zeros((), jnp.int32),
    rng_key=jnp.zeros(2, jnp.uint32),
  )
  terms = ("update/grad_norm", "update/update_norm")
  step = fast_jit(lambda grads: guarded_step(optimizer, state, grads, jnp.float32(0.1), {}, terms))
  for value, is_skipped in ((1.0, False), (bad, True)):
    params, opt_state, bad_term, _ = step({"w": jnp.array([1.0, value])})
    assert (int(bad_term) >= 0) == is_skipped
    same = jax.tree_util.tree_map(np.array_equal, opt_state, state.opt_state)
    assert all(jax.tree_util.tree_leaves(same)) == is_skipped
    assert np.array_equal(params["w"], state.params["w"]) == is_skipped
