"""Tests of counts of parameters and multiply-adds, against counts by hand."""

import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from jax import lax

from moozi.envs.registry import env_spec
from moozi.io.config import load_config
from moozi.training.network_size import count, network_size, parameter_counts
from tests.tiny_run import TINY

# Frames of Catch have 10 × 5 × 2 entries. A policy has 4, with the dummy's; 7 categories.
SETTINGS = ("network.norm=none", "scalar_transform.support_min=-3", "scalar_transform.support_max=3")
D, H, P, S = 3, 2, 4, 7
INPUTS = 10 * 5 * (2 + P)
SMALL = (*TINY, *SETTINGS, f"network.latent_size={D}", f"network.head_size={H}", "targets.unroll_steps=1")


def size_of(*overrides, with_update=True):
  config = load_config(None, [*SMALL, *overrides])
  return network_size(config, env_spec(config.env.name), with_update)


def conv(stride, padding, groups=1):
  def apply(x, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
      x, kernel, (stride, stride), padding, dimension_numbers=layout, feature_group_count=groups
    )

  return apply


def test_dense_layer():
  """Two rows of 5 inputs and 3 outputs; the bias is added without a multiplication."""
  layer = hk.without_apply_rng(hk.transform(lambda x: hk.Linear(3, name="dense")(x)))
  x = jnp.zeros((2, 5))
  params = layer.init(jax.random.PRNGKey(0), x)
  assert parameter_counts(params) == {"dense": 5 * 3 + 3}
  assert count(layer.apply, params, x) == 2 * 5 * 3


@pytest.mark.parametrize(
  ("stride", "padding", "groups", "expected"),
  [
    # In each direction, the kernel of 3 has entries of the input at 2 places for 3, and in all 6.
    (1, "VALID", 1, 6 * 6 * 2 * 6),
    # With padding, the first and the last of 4 places lack one.
    (1, "SAME", 1, 10 * 10 * 2 * 6),
    # Two places: 0 … 2, and 2 … 4, of which 4 is padding.
    (2, "SAME", 1, 5 * 5 * 2 * 6),
    # Each of the 6 outputs reads one of the 2 inputs.
    (1, "VALID", 2, 6 * 6 * 6),
  ],
)
def test_convolution(stride, padding, groups, expected):
  """Of 4 × 4 × 2 entries to 6 channels."""
  x, kernel = jnp.zeros((1, 4, 4, 2)), jnp.zeros((3, 3, 2 // groups, 6))
  assert count(conv(stride, padding, groups), x, kernel) == expected
  assert count(conv(stride, padding, groups), jnp.zeros((5, 4, 4, 2)), kernel) == 5 * expected


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_gradient_of_a_convolution_agrees_with_xla(stride, padding):
  """Each of the two gradients has as many multiply-adds as the convolution, which XLA counts twice."""
  f, x, kernel = conv(stride, padding), jnp.zeros((2, 7, 9, 4)), jnp.zeros((3, 3, 4, 8))
  y = jax.eval_shape(f, x, kernel)

  def gradients(x, kernel, cotangent):
    return jax.vjp(f, x, kernel)[1](cotangent)

  jaxpr = jax.make_jaxpr(gradients)(x, kernel, y)
  forward, gradient = count(f, x, kernel), count(gradients, x, kernel, y)
  num_convolutions = sum(equation.primitive.name == "conv_general_dilated" for equation in jaxpr.eqns)
  assert gradient == num_convolutions * forward
  xla = jax.jit(gradients).lower(x, kernel, jnp.zeros(y.shape)).cost_analysis()["flops"] / 2
  assert xla == 2 * forward  # without the convolution itself, whose result is not used


def test_loops_and_branches():
  w = jnp.zeros((3, 3))

  def branch(x):
    return lax.cond(x[0, 0] > 0, lambda x: x @ w @ w, lambda x: x @ w, x)

  def loop(x):
    return lax.scan(lambda x, _: (jax.jit(branch)(x), None), x, None, length=5)[0]

  assert count(branch, jnp.zeros((1, 3))) == 2 * 9
  assert count(loop, jnp.zeros((1, 3))) == 5 * 2 * 9
  assert count(jax.checkpoint(loop), jnp.zeros((1, 3))) == 5 * 2 * 9


def test_muzero_by_hand():
  size = size_of()
  representation = INPUTS * D + 2 * D * D
  dynamics = (D + P) * D + D * D + D * H + H * S
  prediction = D * 2 * H + H * (S + P)
  projection = 2 * D * D
  biases = {"representation": 3 * D, "dynamics": 2 * D + H + S, "prediction": 2 * H + S + P}
  assert size.parameters == {
    "representation": representation + biases["representation"],
    "dynamics": dynamics + biases["dynamics"],
    "prediction": prediction + biases["prediction"],
    "projection": projection + 2 * D,
  }
  assert list(size.parameters) == ["representation", "dynamics", "prediction", "projection"]
  assert size.num_parameters == sum(size.parameters.values())
  # An update unrolls one step, and represents the next frame. Each layer has two gradients, but the inputs of
  # the network have none. The metric state/rank multiplies the hidden states of all pairs of samples.
  unrolled = representation + dynamics + 2 * prediction + projection
  update = 3 * unrolled - INPUTS * D + representation
  simulation = dynamics + prediction
  assert size.multiply_adds == {
    "representation": representation,
    "simulation": simulation,
    "update": update + 16 * D,
  }
  assert size_of("learner.batch_size=64").multiply_adds["update"] == update + 64 * D
  text = f"network: {size.num_parameters:,} parameters, {simulation:,} multiply-adds in a simulation"
  assert size.describe() == text
  assert size_of(with_update=False).multiply_adds == {
    "representation": representation,
    "simulation": simulation,
  }


def test_a_search_with_true_rules_represents_each_position():
  """A frame has 9 cells of 2 planes and of an entry for each of 10 actions."""
  pytest.importorskip("pgx")
  alphazero = ("algorithm=alphazero", "env.name=pgx:tic_tac_toe", "targets.unroll_steps=0")
  size = size_of(*alphazero, "targets.history_length=1")
  assert list(size.parameters) == ["representation", "prediction"]
  representation = 9 * 12 * D + 2 * D * D
  assert size.multiply_adds["representation"] == representation
  assert size.multiply_adds["simulation"] == representation + D * 2 * H + H * (S + 10)


def test_a_simulation_with_chance_nodes_computes_an_afterstate_and_an_outcome():
  size = size_of("chance.codes=2", "chance.reward_from=outcome", "network.kind=mlp")
  assert list(size.parameters)[:4] == ["representation", "afterstate", "outcome", "prediction"]
  afterstate = (D + P) * D + D * D + D * 2 * H + H * (S + 2)
  outcome = (D + 2) * D + D * D + D * H + H * S
  prediction = D * 2 * H + H * (S + P)
  assert size.multiply_adds["simulation"] == afterstate + outcome + prediction


@pytest.mark.parametrize("cells", [0, 6])
def test_ppo_by_hand(cells):
  """A shared trunk of 8 and 5 units, with and without an LSTM; two heads."""
  network = ("ppo.network.kind=mlp", "ppo.network.hidden_sizes=[8,5]", "ppo.network.sharing=shared")
  size = size_of("algorithm=ppo", *network, f"ppo.network.lstm_size={cells}", "ppo.history_length=1")
  layers, out = 100 * 8 + 8 * 5, cells or 5
  memory = 4 * cells * (5 + cells)
  heads = out * (P + 1)
  assert size.parameters == {
    "trunk": layers + 8 + 5 + memory + 4 * cells,
    "policy": out * P + P,
    "value": out + 1,
  }
  assert size.multiply_adds["decision"] == layers + memory + heads
  # The frames have no gradient.
  assert size.multiply_adds["update"] == 3 * (layers + memory + heads) - 100 * 8
  assert size.describe().endswith(f" {layers + memory + heads:,} multiply-adds in a decision")


def test_q_learning():
  """Separate trunks of 8 units for advantages and value."""
  network = ("q_learning.kind=network", "q_learning.network.kind=mlp", "q_learning.network.hidden_sizes=[8]")
  options = ("q_learning.network.sharing=separate", "q_learning.dueling=true", "q_learning.double=true")
  size = size_of("algorithm=q_learning", *network, *options)
  assert size.parameters == {
    **dict.fromkeys(("policy_trunk", "value_trunk"), 100 * 8 + 8),
    "policy": 8 * P + P,
    "value": 8 + 1,
  }
  layers = 2 * 100 * 8
  forward = layers + 8 * (P + 1)
  assert size.multiply_adds["decision"] == forward
  # Both networks evaluate the next frame.
  assert size.multiply_adds["update"] == 2 * forward + 3 * forward - layers


def test_a_table_has_values_and_no_layers():
  size = size_of("algorithm=q_learning", "q_learning.kind=table", "q_learning.capacity=1024")
  assert size.parameters == {"values": 1024 * P}
  assert size.multiply_adds == {}
  assert size.describe() == "table: 4,096 values"


def test_the_state_of_a_users_algorithm_is_not_known():
  assert size_of("algorithm=examples.algorithm:make") is None
