"""Tests of dataclasses that become JAX pytrees when JAX is imported."""

import dataclasses
import sys

import jax
import numpy as np
import pytest

from moozi.core import pytree
from moozi.core.pytree import fields_of, map_fields, record, register_records, replace, stack


def make_record(x=1.0, y=7.0):
  @record
  class Pair:
    x: float
    y: float

  return Pair(x=x, y=y)


def test_records_defined_before_jax_are_registered_on_demand(monkeypatch):
  with monkeypatch.context() as without_jax:
    without_jax.setattr(pytree, "_unregistered", [])
    without_jax.delitem(sys.modules, "jax")
    pair = make_record()
    unregistered = pytree._unregistered
  assert jax.tree_util.tree_leaves(pair) == [pair]
  monkeypatch.setattr(pytree, "_unregistered", unregistered)
  register_records()
  register_records()
  assert jax.tree_util.tree_leaves(pair) == [1.0, 7.0]


def test_records_defined_after_jax_are_registered_immediately():
  pair = make_record()
  assert jax.tree_util.tree_leaves(pair) == [1.0, 7.0]
  doubled = jax.tree_util.tree_map(lambda x: 2 * x, pair)
  assert (doubled.x, doubled.y) == (2.0, 14.0)


def test_records_are_frozen_and_keyword_only():
  pair = make_record()
  with pytest.raises(dataclasses.FrozenInstanceError):
    pair.x = 2.0
  with pytest.raises(TypeError):
    type(pair)(1.0, 7.0)


def test_field_functions():
  pair = make_record(2.0, 3.0)
  assert fields_of(replace(pair, x=3.0)) == {"x": 3.0, "y": 3.0}
  assert fields_of(map_fields(lambda a, b: a * b, pair, replace(pair, x=5.0))) == {"x": 10.0, "y": 9.0}
  np.testing.assert_array_equal(stack([pair, replace(pair, x=4.0)]).x, [2.0, 4.0])
