"""Tests of layers that compute in bfloat16."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from moozi.agent.update import make_update
from moozi.baselines.q_learning import algorithm as q_learning
from moozi.baselines.q_learning.update import make_update as make_q_update
from moozi.core.pytree import map_fields
from moozi.nn.conv_latent import UnpaddedConv
from moozi.nn.precision import layers_in_bfloat16
from moozi.nn.resnet import PointwiseConv
from moozi.run import build
from tests.learning.many_devices import configure, make_batch

X = np.random.default_rng(0).normal(size=(2, 5, 5, 4)).astype(np.float32)
LAYERS = {
  "dense": lambda x: hk.Linear(3)(x),
  "conv": lambda x: hk.Conv2D(3, 3)(x),
  "unpadded": lambda x: UnpaddedConv(3, 2)(x),
  "pointwise": lambda x: PointwiseConv(3)(x[..., :2], x[:, 0, 0, 2:]),
}


def products(jaxpr) -> list[str]:
  """Returns the dtypes of the factors of all products and convolutions of a jaxpr."""
  found = []
  for eqn in jaxpr.eqns:
    if eqn.primitive.name in ("dot_general", "conv_general_dilated"):
      found += [str(v.aval.dtype) for v in eqn.invars]
    for sub in jaxprs_in_params(eqn.params):
      found += products(sub)
  return found


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_in_bfloat16_and_its_parameters_stay(name):
  init, apply = hk.without_apply_rng(hk.transform(LAYERS[name]))
  x = jnp.asarray(X)
  params = init(jax.random.PRNGKey(0), x)

  def loss(params):
    out = apply(params, x)
    assert out.dtype == jnp.float32
    return jnp.sum(jnp.square(out))

  exact = jax.grad(loss)(params)
  with layers_in_bfloat16():
    rounded = jax.grad(loss)(params)
    jaxpr = jax.make_jaxpr(jax.grad(loss))(params).jaxpr
  assert set(products(jaxpr)) == {"bfloat16"}
  assert set(products(jax.make_jaxpr(lambda p: jax.grad(loss)(p))(params).jaxpr)) == {"float32"}
  for a, b in zip(jax.tree.leaves(exact), jax.tree.leaves(rounded), strict=True):
    assert b.dtype == jnp.float32
    assert 0 < np.abs(a - b).max() < 0.03 * np.abs(a).max()


@pytest.mark.parametrize("family", ["centred", "q_learning"])
def test_an_update_computes_in_bfloat16_only_if_set(family):
  dtypes = {}
  for dtype in ("float32", "bfloat16"):
    config = configure(family, compute_dtype=dtype)
    spec, module = build.env_spec(config), q_learning if family == "q_learning" else build
    if family == "q_learning":
      update = make_q_update(q_learning.make_q_function(config, spec), config)
    else:
      update = make_update(build.build_model(config, spec), config, spec)
    state = jax.eval_shape(functools.partial(module.initial_training_state, config, spec))
    batch = map_fields(lambda x: x[0], make_batch(config))
    dtypes[dtype] = set(products(jax.make_jaxpr(update)(state, batch).jaxpr))
    after, _ = jax.eval_shape(update, state, batch)
    assert jax.tree.map(lambda x: x.dtype, after) == jax.tree.map(lambda x: x.dtype, state)
  assert dtypes["float32"] == {"float32"}
  assert "bfloat16" in dtypes["bfloat16"]
