"""Tests of a model whose state carries the discount: of the search, the loss, and the learner."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np

from moozi.agent.micro_batches import with_micro_batches
from moozi.agent.planner import plan
from moozi.agent.update import init_training_state
from moozi.api.players import TrainedPlayer
from moozi.core.config import Config, PlannerConfig
from moozi.core.spec import EnvSpec
from moozi.learning.learner import Learner
from moozi.learning.non_finite import guard_of
from moozi.nn.horizon import DISCOUNT, config_at, discount_of, with_discount
from tests.agent.tiny import linear_model, one_hot_roots, random_tables, table_model
from tests.compilations import num_compilations
from tests.fast_jit import fast_jit

SPEC = EnvSpec(name="tiny:x", frame_shape=(2, 2, 1), frame_dtype="bool", num_env_actions=2)
CONFIG = Config.model_validate(
  {"targets": {"discount": 0.5, "discount_schedule": [{"env_steps": 10, "discount": 0.75}]}}
)


def test_functions_pass_the_discount_on_and_change_the_rest():
  model = with_discount(linear_model(3), 0.5)
  params, state = model.init(jax.random.PRNGKey(0), jnp.zeros((4, 2, 2, 1)))
  assert state[DISCOUNT].dtype == jnp.float32
  assert (float(discount_of(state, 0.9)), discount_of({}, 0.9), discount_of((), 0.9)) == (0.5, 0.9, 0.9)
  state = {**state, DISCOUNT: jnp.float32(0.7)}
  output, after = model.root_inference(params, state, jnp.zeros((4, 2, 2, 1)), True)
  assert (float(after["calls"]), float(after[DISCOUNT])) == (1.0, np.float32(0.7))
  _, after = model.recurrent_inference(params, after, output.hidden_state, jnp.zeros(4, jnp.int32), True)
  assert (float(after["calls"]), float(after[DISCOUNT])) == (2.0, np.float32(0.7))
  assert config_at(CONFIG, after).targets.discount == np.float32(0.7)
  assert config_at(CONFIG, {}).targets.discount == 0.5


def test_micro_batches_do_not_round_it():
  linear = linear_model(3)
  params, _ = linear.init(jax.random.PRNGKey(0), jnp.zeros((6, 2, 2, 1)))
  # Without the count of calls, which micro-batches refuse.
  stateless = dataclasses.replace(linear, represent=lambda *args: (linear.represent(*args)[0], {}))
  model = with_micro_batches(with_discount(stateless, 0.5), 3)
  state = {DISCOUNT: jnp.float32(0.1)}
  _, after = model.represent(params, state, jnp.zeros((6, 2, 2, 1)), True)
  assert after == state


def test_a_search_has_the_discount_of_the_state_and_is_compiled_once():
  tables = jax.device_put(random_tables(np.random.default_rng(0), 6, 4))
  config = PlannerConfig(algorithm="puct", num_simulations=12)
  history, legal = one_hot_roots([0, 1, 2], 6), np.ones((3, 4), bool)

  @fast_jit
  def search(net_state):
    return plan(
      table_model(4), config, 0.9, 1, tables, net_state, jax.random.PRNGKey(0), history, legal, 0.0
    ).q_values

  fixed = search({})
  carried = {}
  with num_compilations() as count:
    for gamma in (0.9, 0.2, 0.97):
      carried[gamma] = search({DISCOUNT: jnp.float32(gamma)})
    assert count() == 1
  np.testing.assert_allclose(carried[0.9], fixed, rtol=1e-5, atol=1e-6)
  assert np.abs(carried[0.2] - fixed).max() > 0.1


def test_the_learner_changes_only_a_discount_that_the_state_carries():
  model = with_discount(linear_model(3), CONFIG.targets.discount)
  for one, expected in ((model, 0.75), (linear_model(3), None)):
    state = init_training_state(one, CONFIG, SPEC, jax.random.PRNGKey(0))
    learner = Learner(state, lambda *_: None, guard_of(CONFIG.learner, ()), CONFIG, SPEC)
    before = learner.get_state()
    learner.set_discount(0.75)
    after = learner.parameters()[0][1]
    assert after.get(DISCOUNT) == expected
    assert after["calls"] == before.net_state["calls"]
    assert learner.has_averages
    # The state stays one that the next update may donate.
    jax.tree_util.tree_map(np.testing.assert_array_equal, learner.get_state().params, before.params)


def test_the_facts_of_a_player_have_the_discount_of_its_checkpoint():
  player = object.__new__(TrainedPlayer)
  player.uses_prior = False
  for net_state, expected in (({DISCOUNT: jnp.float32(0.75)}, 0.75), ({}, 0.5)):
    player.agent = types.SimpleNamespace(
      config=CONFIG,
      checkpoint=types.SimpleNamespace(digest="d"),
      state=types.SimpleNamespace(variables=({}, net_state)),
      simulations=None,
    )
    assert player.facts["discount"] == expected
