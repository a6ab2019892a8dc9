"""Tests of searches with true rules that sample joint actions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.planner import RulesNode, plan
from moozi.core.config import PlannerConfig
from moozi.envs.environment import moves_array
from moozi.envs.game import GameEnvironment
from moozi.envs.true_rules import CompiledRules, HostRules
from moozi.nn.model import ModelOutput
from moozi.ops.history import HistoryState, network_input
from moozi.ops.scalar_transform import ScalarTransform
from tests.agent.tiny import encode, model_of
from tests.envs.lock import NUM_MOVES, SIZE, SPEC, Lock, make_jax_lock
from tests.fast_jit import fast_jit

PHI = ScalarTransform(-2, 2, 0.001)
LISTED = dataclasses.replace(SPEC, factors=None)
LINES = ((), (7,), (12, 5))
SETTINGS = {"num_simulations": 60, "temperature": 0, "gumbel_scale": 0, "num_sampled_actions": SIZE * SIZE}


def model(spec):
  """Returns a random network that reads the frame alone; its joint policy is the same for both specs."""

  def root(params, net_state, stacked, is_training):
    frame = stacked[:, 0, 0, :3]
    keys = jax.random.split(jax.random.PRNGKey(3), 3)
    first, second, value = (
      jnp.sin(4.0 * frame @ jax.random.normal(key, (3, size)))
      for key, size in zip(keys, (SIZE, SIZE, 1), strict=True)
    )
    if spec.is_factored:
      logits = jnp.concatenate([jnp.zeros((len(frame), 1)), first, second], axis=-1)
    else:
      joint = (first[:, :, None] + second[:, None]).reshape(len(frame), -1)
      logits = jnp.concatenate([jnp.zeros((len(frame), 1)), joint], axis=-1)
    value = encode(value[:, 0], PHI)
    return (
      ModelOutput(hidden_state=frame, value_logits=value, reward_logits=value, policy_logits=logits),
      net_state,
    )

  return model_of(spec.policy_groups, root, transform=PHI)


def roots(spec, is_compiled):
  """Returns the nodes after LINES: positions, and histories of one frame."""
  frames, positions = [], []
  for line in LINES:
    game = Lock()
    for move in line:
      game.step(move)
    frames.append(game.frame())
    positions.append(game._state.astype(np.int32) if is_compiled else moves_array(line, NUM_MOVES))
  actions = np.array([[line[-1] + 1 if line else 0] for line in LINES], np.int32)
  history = HistoryState(frames=np.stack(frames)[:, None], actions=actions)
  return RulesNode(position=np.stack(positions), history=history, is_over=np.zeros(len(LINES), bool))


def search(spec, algorithm, is_compiled):
  rules = CompiledRules(make_jax_lock(spec)) if is_compiled else HostRules(GameEnvironment(Lock(), spec))
  legal = np.ones((len(LINES), spec.policy_size), bool)
  legal[:, 0] = False
  config = PlannerConfig(algorithm=algorithm, **SETTINGS)

  @fast_jit
  def run(node):
    stacked = network_input(node.history.frames, node.history.actions, spec)
    key = jax.random.PRNGKey(0)
    return plan(
      model(spec), config, 0.9, 1, {}, {}, key, stacked, legal, 0.0, with_tree=True, rules=rules, node=node
    )

  return jax.device_get(run(roots(spec, is_compiled)))


@pytest.mark.parametrize(
  ("algorithm", "is_compiled"),
  [
    ("gumbel", True),
    ("gumbel", False),
    pytest.param("puct", True, marks=pytest.mark.slow),
    pytest.param("puct", False, marks=pytest.mark.slow),
  ],
)
def test_all_actions_give_the_enumerated_search(algorithm, is_compiled):
  got, want = (search(spec, algorithm, is_compiled) for spec in (SPEC, LISTED))
  np.testing.assert_array_equal(got.sampled_actions, [range(1, 1 + SIZE * SIZE)] * len(LINES))
  np.testing.assert_array_equal(got.action, want.action)
  np.testing.assert_allclose(got.root_value, want.root_value, atol=1e-4)
  np.testing.assert_allclose(got.q_values, want.q_values[:, 1:], atol=1e-4)
  np.testing.assert_allclose(got.sampled_probs, want.action_probs[:, 1:], atol=1e-4)
  # The trees reach ends and rewards, and are deeper than the root's children.
  is_visited = got.tree.children_visits > 0
  assert (got.tree.children_discounts[is_visited] == 0).any()
  assert set(np.unique(got.tree.children_rewards[is_visited])) == {0.0, 1.0}
  assert got.depth_max[0] > 1
