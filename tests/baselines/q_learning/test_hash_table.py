"""Tests of the hash table: keys, cells, and its updates against a dictionary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.baselines.q_learning.hash_table import (
  QTable,
  cells_of,
  empty_table,
  insert,
  keys_of,
  learn,
  put_back,
  take,
  values_at,
)
from moozi.core.pytree import replace
from tests.fast_jit import fast_jit

KEYS = fast_jit(keys_of)


def observations(dtype: str, count: int) -> tuple[np.ndarray, np.ndarray]:
  random = np.random.default_rng(0)
  frames = random.integers(0, 2 if dtype == "bool" else 200, (count, 2, 3, 3, 2)).astype(dtype)
  mask = random.random((count, 5)) < 0.5
  mask[:, 0] = True
  return frames, mask


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32"])
def test_keys_of_distinct_observations_are_distinct(dtype):
  frames, mask = observations(dtype, 3000)
  distinct = {f.tobytes() + m.tobytes() for f, m in zip(frames, mask, strict=True)}
  keys = np.asarray(KEYS(frames, mask))
  assert len(np.unique(keys, axis=0)) == len(distinct)
  assert keys[:, 1].all()
  # Every bit except the lowest of the second word, which is always 1, is set in about half of the keys.
  bits = np.unpackbits(keys.view(np.uint8), bitorder="little").reshape(-1, 64).mean(axis=0)
  assert (np.abs(np.delete(bits, 32) - 0.5) < 0.06).all()
  np.testing.assert_array_equal(KEYS(frames[7:9], mask[7:9]), keys[7:9])


def test_key_depends_on_place_and_legal_actions():
  frames = np.zeros((3, 1, 1, 1, 4), np.float32)
  frames[1, ..., 1], frames[2, ..., 2] = 1, 1
  mask = np.ones((3, 2), bool)
  assert len(np.unique(KEYS(frames, mask), axis=0)) == 3
  other = KEYS(frames, np.array([[True, False]] * 3))
  assert (np.asarray(other) != np.asarray(KEYS(frames, mask))).any(axis=-1).all()
  np.testing.assert_array_equal(KEYS(-frames[:1], mask[:1]), KEYS(frames[:1], mask[:1]))


def learn_each(table: QTable, keys, actions, targets, is_live, step_size: float = 0.1):
  """Inserts keys and learns the targets in order; returns the table and the errors."""
  table = insert(table, keys, is_live)
  cells = jnp.where(is_live, cells_of(table, keys), len(table.keys))
  return jax.lax.scan(lambda table, row: learn(table, *row, step_size), table, (cells, actions, targets))


LEARN = fast_jit(learn_each, static_argnames="step_size")
VALUES = fast_jit(lambda table, keys: values_at(table, cells_of(table, keys)))


def test_table_equals_a_dictionary():
  """Half of the 256 cells are used, and many keys are not in their first cell."""
  random = np.random.default_rng(1)
  keys = random.integers(1, 2**32, (128, 2), dtype=np.uint32)
  table, expected = empty_table(256, 3), {}
  for _ in range(60):
    rows, actions = random.integers(128, size=10), random.integers(3, size=10).astype(np.int32)
    targets, is_live = random.normal(size=10).astype(np.float32), random.random(10) < 0.9
    table, errors = LEARN(table, keys[rows], actions, targets, is_live, step_size=0.25)
    for i, action, target, error, is_used in zip(rows, actions, targets, errors, is_live, strict=True):
      if not is_used:
        continue
      values, visits = expected.setdefault(i, (np.zeros(3, np.float32), np.zeros(3, int)))
      assert error == pytest.approx(target - values[action], abs=1e-6)
      visits[action] += 1
      values[action] += max(0.25, 1 / visits[action]) * (target - values[action])
  found = VALUES(table, keys)
  for i in range(128):
    np.testing.assert_allclose(found[i], expected[i][0] if i in expected else np.zeros(3), atol=1e-6)
  assert int(np.sum(table.keys[:, 1] != 0)) == len(expected) > 100


@pytest.mark.slow
def test_cells_wrap_around_and_run_out():
  """With three cells, the keys start their search in cell 2, and the fourth one finds none."""
  keys = np.array([[2, 1], [2, 3], [2, 5], [2, 7]], np.uint32)
  table, _ = LEARN(empty_table(3, 1), keys, np.zeros(4, np.int32), np.float32([1, 3, 5, 7]), np.ones(4, bool))
  assert cells_of(table, keys).tolist() == [2, 0, 1, 3]
  assert VALUES(table, keys)[:, 0].tolist() == [1, 3, 5, 0]
  # A full table still updates its entries.
  table, _ = LEARN(
    table, keys, np.zeros(4, np.int32), np.float32([1, 4, 5, 7]), np.array([False, True, False, True])
  )
  assert VALUES(table, keys)[:, 0].tolist() == [1, 3.5, 5, 0]


def test_taken_entries_return_to_their_cells():
  table = QTable(
    keys=jnp.arange(10, dtype=jnp.uint32).reshape(5, 2),
    values=jnp.arange(5.0)[:, None],
    visits=jnp.arange(5, dtype=jnp.int32)[:, None],
  )
  cells = np.array([3, 5, 1, 3, 5], np.int32)  # 5 is out of range
  taken, index = fast_jit(take)(table, cells)
  assert taken.values[:, 0].tolist() == [3, 0, 1, 3, 0]
  assert index.tolist() == [0, 1, 2, 0, 1]
  taken = replace(taken, values=taken.values.at[0].set(30.0).at[1].set(70.0))
  assert fast_jit(put_back)(table, cells, taken, index).values[:, 0].tolist() == [0, 1, 2, 30, 4]
