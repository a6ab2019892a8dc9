"""Tests of searches with true rules: immediate wins, two players, terminal nodes, illegal actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.muzero import make_muzero
from moozi.agent.search_tree import plain_tree
from moozi.core.config import PlannerConfig, TargetsConfig
from moozi.core.spec import DUMMY_ACTION
from moozi.envs import registry
from moozi.envs.vector import make_vector
from moozi.nn.model import Model, ModelOutput
from moozi.ops.history import init_history, normalize_frame, push_action, push_frame, stack_history
from moozi.ops.scalar_transform import ScalarTransform
from tests.agent.tiny import model_of
from tests.fast_jit import fast_jit

pytest.importorskip("pyspiel")
PHI = ScalarTransform(-2, 2, 0.001)
GAMES = [
  "open_spiel:tic_tac_toe",
  pytest.param("pgx:tic_tac_toe", marks=pytest.mark.slow),
]
SLOW_SEARCHES = ["gumbel", pytest.param("puct", marks=pytest.mark.slow)]
LENGTH = 2
# x: 0, 1; o: 3, 4; x is to move and wins by 2, and o threatens 5.
WIN_IN_ONE = (0, 3, 1, 4)


def network(num_actions: int, scale: float) -> Model:
  """Returns a random linear network of the stacked history; with scale 0, an untrained one."""

  def root(params, net_state, stacked, is_training):
    flat = stacked.reshape(stacked.shape[0], -1)
    keys = jax.random.split(jax.random.PRNGKey(1), 2)
    logits, values = (
      scale * flat @ jax.random.normal(key, (flat.shape[1], size))
      for key, size in zip(keys, (num_actions, PHI.size), strict=True)
    )
    return ModelOutput(
      hidden_state=flat, value_logits=values, reward_logits=values, policy_logits=logits
    ), net_state

  return model_of(num_actions, root, transform=PHI)


class Searched:
  """The search of the positions after some sequences of moves, one lane each."""

  def __init__(self, game, algorithm, lines, simulations=40, scale=0.0, discount=1.0):
    spec, rules = registry.env_spec(game), registry.true_rules(game)
    self.model = network(spec.num_actions, scale)
    planner = PlannerConfig(algorithm=algorithm, num_simulations=simulations, temperature=0, gumbel_scale=0)
    targets = TargetsConfig(history_length=LENGTH, unroll_steps=0, discount=discount)
    agent = make_muzero(self.model, planner, targets, spec, True, rules)
    histories, steps, positions = [], [], []
    for line in lines:
      history, env = agent.init(1), make_vector(game, {}, 1, seed=0)
      step = env.reset()
      for move in line:
        history = agent.observe({}, history, step, np.array([move + 1], np.int32))
        step = env.step(np.array([move + 1]))
      histories.append(history)
      steps.append(step)
      positions.append(env.positions())
    join = lambda *xs: np.concatenate([np.asarray(x) for x in xs])  # noqa: E731
    history, self.step, position = (jax.tree.map(join, *xs) for xs in (histories, steps, positions))
    key, temperature = jax.random.PRNGKey(0), jnp.float32(0)
    act = fast_jit(agent.act)
    _, self.output = act(({}, {}), history, self.step, key, temperature, None, position)
    self.lines, self.spec = lines, spec


def seen_after(spec, game, moves):
  """Returns the history, the reward and whether the game is over after moves, by the environment's steps."""
  env = registry.make(game, seed=0)
  step, history = env.reset(), init_history(1, LENGTH, spec)
  for move in moves:
    history = push_frame(history, step.observation.frame[None], np.array([step.first()]))
    history = push_action(history, np.array([move + 1], np.int32))
    step = env.step(move)
  history = push_frame(history, step.observation.frame[None], np.array([step.first()]))
  return history, float(step.reward or 0.0), step.last()


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("algorithm", SLOW_SEARCHES)
def test_win_in_one(game, algorithm):
  """The search of an untrained network finds an immediate win, for each player.

  The lanes: the player to move can win; the other player can win after a wasted move; the end; the start.
  """
  found = Searched(game, algorithm, [WIN_IN_ONE, (*WIN_IN_ONE, 8), (*WIN_IN_ONE, 2), ()])
  output = found.output
  assert output.action[:2].tolist() == [2 + 1, 5 + 1]
  np.testing.assert_allclose(output.extras["q_values"][[0, 1], [3, 6]], 1.0)
  assert (np.asarray(output.root_value[:2]) > 0.7).all()
  assert (output.action[2], output.root_value[2]) == (DUMMY_ACTION, 0)
  assert abs(float(output.root_value[3])) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("game", ["open_spiel:tic_tac_toe", "pgx:tic_tac_toe", "open_spiel:connect_four"])
@pytest.mark.parametrize("algorithm", ["gumbel", "puct"])
def test_every_node_is_the_games(game, algorithm):
  """Each node has the network's value of the true frame, and the reward and end of the game; moves are legal.

  The value of a node follows from the values of its children, with the signs of two players.
  """
  lines, discount = [WIN_IN_ONE, (), (4, 0, 2, 6)], 0.9
  found = Searched(game, algorithm, lines, simulations=60, scale=0.7, discount=discount)
  tree = plain_tree(found.output.extras["tree"])
  num_ends, seen = 0, []
  for lane, line in enumerate(lines):
    moves, is_over = {0: line}, {0: False}
    below = {node: [] for node in range(tree.parent.shape[1])}
    for node in range(1, tree.parent.shape[1]):
      above = int(tree.parent[lane, node])
      if tree.visits[lane, node] == 0:
        continue
      reward = float(tree.reward[lane, node])
      below[above].append((node, reward))
      if is_over[above]:
        moves[node], is_over[node] = moves[above], True
        assert (tree.raw_value[lane, node], reward) == (0, 0)
        continue
      moves[node] = (*moves[above], int(tree.action[lane, node]) - 1)
      history, true_reward, is_over[node] = seen_after(found.spec, game, moves[node])
      assert reward == true_reward
      num_ends += is_over[node]
      if is_over[node]:
        assert tree.raw_value[lane, node] == 0
      else:
        seen.append((history, tree.raw_value[lane, node]))
    for node, children in below.items():
      if children and not is_over[node]:
        total = float(tree.raw_value[lane, node])
        for child, reward in children:
          future = 0.0 if is_over[child] else -discount * float(tree.value[lane, child])
          total += int(tree.visits[lane, child]) * (reward + future)
        np.testing.assert_allclose(tree.value[lane, node], total / tree.visits[lane, node], atol=1e-4)
  assert num_ends > 1
  history = jax.tree.map(lambda *xs: np.concatenate(xs), *(history for history, _ in seen))
  frames = normalize_frame(history.frames, found.spec.frame_dtype)
  stacked = stack_history(frames, history.actions, found.spec.policy_groups)
  output, _ = found.model.root_inference({}, {}, jnp.asarray(stacked), False)
  np.testing.assert_allclose(PHI.to_scalar(output.value_logits), [value for _, value in seen], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["gumbel", "puct"])
def test_both_kinds_of_rules_search_alike(algorithm):
  """The untrained network gives equal outputs for the frames of both libraries, so the searches are equal."""
  lines = [WIN_IN_ONE, (), (4,), (4, 0, 8, 2), (0, 4, 8, 1)]
  host, compiled = (
    Searched(f"{library}:tic_tac_toe", algorithm, lines, simulations=80).output
    for library in ("open_spiel", "pgx")
  )
  for name in ("action", "action_probs", "root_value"):
    np.testing.assert_array_equal(getattr(host, name), getattr(compiled, name), err_msg=name)
  for name in ("q_values", "depth_mean", "depth_max"):
    np.testing.assert_array_equal(host.extras[name], compiled.extras[name], err_msg=name)
  np.testing.assert_array_equal(host.extras["tree"].node_visits, compiled.extras["tree"].node_visits)
