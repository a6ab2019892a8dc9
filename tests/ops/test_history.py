"""Tests of the history operations in NumPy and JAX, against an oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.core.pytree import register_records
from moozi.core.spec import EnvSpec
from moozi.ops.history import init_history, normalize_frame, push_action, push_frame, stack_history
from tests.fast_jit import fast_jit, on_numpy

SPEC = EnvSpec(name="t:t", frame_shape=(2, 3, 2), frame_dtype="bool", num_env_actions=2)


def slow_stack(frames, actions, num_actions):
  """Returns the stacked history by the thesis's nine steps, computed cell by cell."""
  length, height, width, channels = frames.shape
  out = np.zeros((height, width, length * (channels + num_actions)), np.float32)
  for h in range(height):
    for w in range(width):
      for i in range(length):
        for c in range(channels):
          out[h, w, i * channels + c] = frames[i, h, w, c]
        for a in range(num_actions):
          plane = length * channels + i * num_actions + a
          out[h, w, plane] = np.float32(actions[i] == a) / np.float32(num_actions)
  return out


@pytest.mark.parametrize("run", [on_numpy, fast_jit], ids=["numpy", "jax.numpy"])
@pytest.mark.parametrize("length", [1, 3])
def test_stack_history_is_the_nine_steps(run, length):
  rng = np.random.default_rng(0)
  frames = rng.normal(size=(4, length, 2, 3, 2)).astype(np.float32)
  actions = rng.integers(0, 3, (4, length)).astype(np.int32)
  got = np.asarray(run(stack_history, static_argnums=2)(frames, actions, (3,)))
  want = np.stack([slow_stack(f, a, 3) for f, a in zip(frames, actions, strict=True)])
  assert got.dtype == np.float32
  np.testing.assert_array_equal(got, want)


def test_stack_history_takes_any_leading_axes():
  frames = np.random.default_rng(0).normal(size=(2, 5, 3, 2, 3, 2)).astype(np.float32)
  actions = np.ones((2, 5, 3), np.int32)
  got = stack_history(frames, actions, (3,))
  assert got.shape == (2, 5, 2, 3, 15)
  np.testing.assert_array_equal(got[1, 4], stack_history(frames[1, 4], actions[1, 4], (3,)))


@pytest.mark.parametrize(
  ("dtype", "frame", "expected"),
  [
    ("bool", [False, True], [0.0, 1.0]),
    ("uint8", [0, 51, 255], [0.0, 0.2, 1.0]),
    ("float32", [-1.5, 3.0], [-1.5, 3.0]),
  ],
)
@pytest.mark.parametrize("run", [on_numpy, fast_jit], ids=["numpy", "jax.numpy"])
def test_normalize_frame(run, dtype, frame, expected):
  got = run(normalize_frame, static_argnums=1)(np.array(frame, dtype), dtype)
  assert got.dtype == np.float32
  np.testing.assert_allclose(got, np.float32(expected), rtol=1e-6)


def test_normalize_frame_rejects_other_dtypes():
  with pytest.raises(ValueError, match="int64"):
    normalize_frame(np.zeros(1), "int64")


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), length=st.integers(1, 4))
def test_push_equals_slow_history(seed, length):
  """Random episodes, two lanes: at t the state has o_{t-L+1..t} and a_{t-L..t-1} of this episode."""
  rng = np.random.default_rng(seed)
  num_steps, batch = 12, 2
  frames = rng.random((num_steps, batch, 2, 3, 2)) < 0.5
  actions = rng.integers(1, 3, (num_steps, batch)).astype(np.int32)
  is_first = rng.random((num_steps, batch)) < 0.25
  is_first[0] = True
  state = init_history(batch, length, SPEC)
  for t in range(num_steps):
    state = push_frame(state, frames[t], is_first[t])
    for b in range(batch):
      start = max(s for s in range(t + 1) if is_first[s, b])
      for i, s in enumerate(range(t - length + 1, t + 1)):
        want = frames[s, b] if s >= start else np.zeros_like(frames[0, b])
        np.testing.assert_array_equal(state.frames[b, i], want)
      for i, s in enumerate(range(t - length, t)):
        assert state.actions[b, i] == (actions[s, b] if s >= start else 0)
    state = push_action(state, actions[t])


def test_push_is_equal_on_jax():
  register_records()
  rng = np.random.default_rng(1)
  state = init_history(2, 3, SPEC)
  jax_state = jax.tree_util.tree_map(jnp.asarray, state)
  push = jax.jit(lambda s, f, first, a: push_action(push_frame(s, f, first), a))
  for t in range(5):
    frame, action = rng.random((2, 2, 3, 2)) < 0.5, rng.integers(1, 3, 2)
    first = np.array([t == 0, t in (0, 3)])
    state = push_action(push_frame(state, frame, first), action)
    jax_state = push(jax_state, frame, first, action)
    np.testing.assert_array_equal(jax_state.frames, state.frames)
    np.testing.assert_array_equal(jax_state.actions, state.actions)
  assert state.frames.dtype == np.bool_
  assert state.actions.dtype == np.int32
  assert jax_state.frames.dtype == np.bool_
  assert jax_state.actions.dtype == np.int32
