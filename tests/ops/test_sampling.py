"""Tests of the sum tree, the rank table, the order by priority and the importance ratios."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.ops.sampling import SumTree, importance_ratio, order_by_priority, rank_weights


def slow_find(weights, mass):
  """Returns the first leaf at which the running sum of weights exceeds `mass`."""
  running = 0.0
  for i, weight in enumerate(weights):
    running += weight
    if mass < running:
      return i
  raise AssertionError("mass beyond the total")


class TestSumTree:
  def test_find_by_hand(self):
    tree = SumTree(5)
    tree.assign(np.arange(5), np.asarray([1.0, 0.0, 2.0, 4.0, 1.0]))
    assert tree.total == 8.0
    mass = np.asarray([0.0, 0.99, 1.0, 2.99, 3.0, 6.99, 7.0, 7.99])
    assert tree.find(mass).tolist() == [0, 0, 2, 2, 3, 3, 4, 4]

  @settings(max_examples=40)
  @given(
    size=st.integers(1, 40),
    updates=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 6)), min_size=1, max_size=60),
    chunk=st.integers(1, 7),
  )
  def test_equals_plain_list(self, size, updates, chunk):
    tree, weights = SumTree(size), [0.0] * size
    updates = [(i % size, float(w)) for i, w in updates]
    for start in range(0, len(updates), chunk):
      part = updates[start : start + chunk]
      tree.assign(np.asarray([i for i, _ in part]), np.asarray([w for _, w in part]))
      for i, w in part:
        weights[i] = w
    assert tree.leaves.tolist() == weights
    assert tree.total == sum(weights)
    if sum(weights):
      mass = np.arange(0, sum(weights), 0.5)
      assert tree.find(mass).tolist() == [slow_find(weights, m) for m in mass]
    else:
      with pytest.raises(ValueError, match="nothing to draw"):
        tree.find(np.zeros(1))

  def test_never_finds_a_leaf_of_weight_zero(self):
    rng = np.random.default_rng(0)
    weights = rng.random(1000) ** 8 * (rng.random(1000) < 0.1)
    tree = SumTree(1000)
    tree.assign(np.arange(1000), weights)
    edges = np.concatenate([np.cumsum(weights), [np.nextafter(tree.total, 0), tree.total]])
    found = tree.find(np.minimum(edges, tree.total))
    assert (weights[found] > 0).all()

  def test_mass_equal_to_total_finds_last_weight(self):
    tree = SumTree(6)
    tree.assign(np.arange(4), np.asarray([1.0, 0.0, 2.0, 0.0]))
    assert tree.find(np.asarray([3.0])).tolist() == [2]

  def test_depends_on_leaves_only(self):
    rng = np.random.default_rng(1)
    weights = rng.random(300)
    one, many = SumTree(300), SumTree(300)
    one.assign_all(weights)
    many.assign(np.arange(300), rng.random(300))
    for i in rng.permutation(300):
      many.assign(np.asarray([i]), weights[[i]])
    assert one.total == many.total
    mass = rng.random(1000) * one.total
    np.testing.assert_array_equal(one.find(mass), many.find(mass))

  def test_rejects_size_zero(self):
    with pytest.raises(ValueError, match="size=0"):
      SumTree(0)


def test_rank_weights_by_hand():
  np.testing.assert_allclose(rank_weights(4, 0.5), [1, 1 / np.sqrt(2), 1 / np.sqrt(3), 0.5], rtol=1e-15)
  assert rank_weights(3, 0.0).tolist() == [1, 1, 1]


class TestOrder:
  def test_by_hand(self):
    slot = np.asarray([7, 3, 9, 1])
    priority = np.float32([0.5, 2.0, 0.0, 1.0])
    assert order_by_priority(slot, priority).tolist() == [3, 1, 7, 9]

  @settings(max_examples=40)
  @given(
    priority=st.lists(st.floats(0, 2.0**100, width=32), min_size=1, max_size=50, unique=True),
    salt=st.integers(0, 2**32 - 1),
    seed=st.integers(0, 2**32 - 1),
  )
  def test_equals_plain_sorting(self, priority, salt, seed):
    slot = np.random.default_rng(seed).choice(2**32 - 1, size=len(priority), replace=False)
    ordered = order_by_priority(slot, np.float32(priority), salt)
    pairs = sorted(zip(priority, slot.tolist(), strict=True), reverse=True)
    assert ordered.tolist() == [s for _, s in pairs]

  def test_equal_priorities_are_scattered(self):
    slot = np.arange(10_000)
    orders = [order_by_priority(slot, np.zeros(10_000, np.float32), salt) for salt in (0, 12345)]
    for order in orders:
      assert np.sort(order).tolist() == slot.tolist()
      # Ties are broken at random: the best ranks are spread evenly over the slots.
      share = np.bincount(order[:2500] // 2500, minlength=4) / 2500
      assert np.abs(share - 0.25).max() < 0.05
    assert (orders[0] != orders[1]).mean() > 0.9

  def test_minus_zero_is_zero(self):
    order = order_by_priority(np.arange(3), np.float32([-0.0, 1.0, 0.0]))
    assert order[0] == 1


class TestImportanceRatio:
  def test_by_hand(self):
    probability = np.asarray([0.5, 0.25, 0.125])
    assert importance_ratio(probability, 4).tolist() == [0.5, 1.0, 2.0]
    np.testing.assert_allclose(importance_ratio(probability, 4, 0.5), np.sqrt([0.5, 1.0, 2.0]), rtol=1e-6)
    assert importance_ratio(probability, 4, 0.0).tolist() == [1, 1, 1]
    assert importance_ratio(probability, 4, 1.0).dtype == np.float32

  def test_normalized_within_each_batch(self):
    probability = np.asarray([[0.5, 0.25], [0.125, 0.5]])
    assert importance_ratio(probability, 4, 1.0, True).tolist() == [[0.5, 1.0], [1.0, 0.25]]
