"""Tests of dataclasses that become JAX pytrees when JAX is imported."""

import dataclasses
import sys

import jax
import numpy as np
import pytest

from moozi.core import pytree
from moozi.core.pytree import fields_of, map_fields, record, register_records, replace, stack, static_field


def make_record(x=1.0, name="a"):
  @record
  class Pair:
    x: float
    name: str = static_field(default="a")

  return Pair(x=x, name=name)


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
  assert jax.tree_util.tree_leaves(pair) == [1.0]


def test_records_defined_after_jax_are_registered_immediately():
  assert jax.tree_util.tree_leaves(make_record()) == [1.0]


def test_static_fields_are_structure():
  register_records()
  doubled = jax.tree_util.tree_map(lambda x: 2 * x, make_record(name="b"))
  assert (doubled.x, doubled.name) == (2.0, "b")


def test_records_are_frozen_and_keyword_only():
  pair = make_record()
  with pytest.raises(dataclasses.FrozenInstanceError):
    pair.x = 2.0
  with pytest.raises(TypeError):
    type(pair)(1.0)


def test_field_functions():
  pair = make_record(2.0, "b")
  assert fields_of(replace(pair, x=3.0)) == {"x": 3.0, "name": "b"}
  assert fields_of(map_fields(lambda a, b: a * b, pair, replace(pair, x=5.0))) == {"x": 10.0, "name": "b"}
  np.testing.assert_array_equal(stack([pair, replace(pair, x=4.0)]).x, [2.0, 4.0])
