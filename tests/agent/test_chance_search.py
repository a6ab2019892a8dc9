"""Tests of the search with chance nodes, against an oracle in plain Python and against known values."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest

from moozi.agent.planner import plan
from moozi.agent.search_tree import plain_tree, root_state
from moozi.core.config import PlannerConfig
from tests.agent.tiny import (
  chance_table_model,
  one_hot_roots,
  random_chance_tables,
  table_model,
)
from tests.envs.corridor import corridor_values
from tests.fast_jit import fast_jit

N, A, C = 6, 4, 3
GAMMA = 0.9
CONFIG = PlannerConfig(algorithm="stochastic", num_simulations=24, q_range_floor=0.1)
GUMBEL = PlannerConfig(
  algorithm="stochastic_gumbel",
  num_simulations=24,
  q_range_floor=0.1,
  gumbel_scale=0.0,
  gumbel_value_scale=0.02,
)
LEGAL = np.array([[0, 1, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1], [1, 0, 0, 0]], bool)
ROOTS = [0, 1, 2, 3]


@functools.cache
def compiled(model, config, discount, num_players):
  def search(tables, key, history, legal):
    out = plan(model, config, discount, num_players, tables, {}, key, history, legal, 0.0, with_tree=True)
    return out, plain_tree(out.tree), root_state(out.tree)

  return fast_jit(search)


MODEL = chance_table_model(A, C)
REWARD_FIRST = chance_table_model(A, C, "afterstate")


@dataclasses.dataclass
class Node:
  """A node of the oracle's tree; `state` is the row of its state or afterstate in the tables."""

  state: int
  value_sum: float
  is_chance: bool = False
  visits: int = 1
  children: dict[int, "Node"] = dataclasses.field(default_factory=dict)

  @property
  def value(self) -> float:
    return self.value_sum / self.visits

  def num(self, edge: int) -> int:
    return self.children[edge].visits if edge in self.children else 0


def softmax(logits):
  weights = [math.exp(float(v)) for v in logits]
  return [w / sum(weights) for w in weights]


def oracle(config, tables, root_state, legal, signed_discount) -> Node:
  """Returns the root of the search tree.

  A chance node visits the outcome with the largest p / (visits + 1). Actions are chosen by puct, among the
  legal ones at the root, with Q-values normalized as in `puct_oracle`; or as in Gumbel MuZero without noise.
  Source: Antonoglou et al. 2022; Danihelka et al. 2022.
  """
  schedule = halving_schedule(int(sum(legal)), config.num_simulations)
  root = Node(root_state, float(tables["value"][root_state]))
  for i in range(config.num_simulations):
    node, path = root, []
    while True:
      if node.is_chance:
        edge = select_code(tables, node)
      elif config.algorithm == "stochastic":
        edge = select_by_puct(tables, node, legal if node is root else None)
      elif node is root:
        edge = select_at_gumbel_root(config, tables, root, legal, schedule[i])
      else:
        policy = improved_policy(config, tables, node)
        total = sum(child.visits for child in node.children.values())
        edge = max(range(A), key=lambda a: policy[a] - node.num(a) / (1 + total))
      path.append((node, edge))
      if edge not in node.children:
        break
      node = node.children[edge]
    if node.is_chance:
      state = int(tables["next_state"][node.state, edge])
      leaf = Node(state, float(tables["value"][state]))
    else:
      state = int(tables["after_state"][node.state, edge])
      leaf = Node(state, float(tables["after_value"][state]), is_chance=True)
    node.children[edge] = leaf
    value = leaf.value
    for parent, taken in reversed(path):
      if parent.is_chance:
        value = float(tables["reward"][parent.state, taken]) + signed_discount * value
      parent.value_sum += value
      parent.visits += 1
  return root


def select_code(tables, node) -> int:
  probs = softmax(tables["chance"][node.state])
  return max(range(C), key=lambda c: probs[c] / (node.num(c) + 1))


def halving_schedule(num_actions, num_simulations) -> list[int]:
  """Returns the visit count that an action must have to be a candidate, for each simulation."""
  schedule, visits, considered = [], [0] * num_actions, num_actions
  if num_actions == 1:
    return list(range(num_simulations))
  while len(schedule) < num_simulations:
    for _ in range(max(1, int(num_simulations / (math.ceil(math.log2(num_actions)) * considered)))):
      schedule += visits[:considered]
      visits[:considered] = [n + 1 for n in visits[:considered]]
    considered = max(2, considered // 2)
  return schedule[:num_simulations]


def completed_scores(config, tables, node, legal=None) -> list[float]:
  """Returns logit + σ(completed Q) of each action."""
  logits = [float(x) for x in tables["logits"][node.state]]
  prior = softmax([x if legal is None or legal[a] else -1e30 for a, x in enumerate(logits)])
  visited = sum(prior[a] for a in node.children)
  total = sum(child.visits for child in node.children.values())
  mixed = float(tables["value"][node.state])
  if node.children:
    mixed += total * sum(prior[a] * child.value for a, child in node.children.items()) / visited
  q = [node.children[a].value if a in node.children else mixed / (1 + total) for a in range(A)]
  scale = config.gumbel_value_scale * (config.gumbel_maxvisit_init + max(node.num(a) for a in range(A)))
  spread = max(max(q) - min(q), config.q_range_floor)
  return [logits[a] + scale * (q[a] - min(q)) / spread for a in range(A)]


def improved_policy(config, tables, node, legal=None) -> list[float]:
  scores = completed_scores(config, tables, node, legal)
  return softmax([x if legal is None or legal[a] else -1e30 for a, x in enumerate(scores)])


def select_at_gumbel_root(config, tables, root, legal, num_visits) -> int:
  scores = completed_scores(config, tables, root, legal)
  return max((a for a in range(A) if legal[a] and root.num(a) == num_visits), key=lambda a: scores[a])


def select_by_puct(tables, node, legal) -> int:
  actions = [a for a in range(A) if legal is None or legal[a]]
  prior = dict(zip(actions, softmax([tables["logits"][node.state][a] for a in actions]), strict=True))
  q = {a: child.value for a, child in node.children.items()}
  low, high = min([node.value, *q.values()]), max([node.value, *q.values()])
  explore = CONFIG.pb_c_init + math.log((node.visits + CONFIG.pb_c_base + 1) / CONFIG.pb_c_base)

  def score(a):
    bonus = explore * prior[a] * math.sqrt(node.visits) / (1 + node.num(a))
    return bonus + (q.get(a, low) - low) / max(high - low, CONFIG.q_range_floor)

  return max(actions, key=score)


@pytest.mark.parametrize(
  ("config", "num_players"),
  [
    pytest.param(CONFIG, 1, marks=pytest.mark.slow, id="puct-1"),
    pytest.param(CONFIG, 2, id="puct-2"),
    pytest.param(GUMBEL, 1, marks=pytest.mark.slow, id="gumbel-1"),
    pytest.param(GUMBEL, 2, marks=pytest.mark.slow, id="gumbel-2"),
  ],
)
def test_search_equals_oracle(config, num_players):
  search = compiled(MODEL, config, GAMMA, num_players)
  for seed in range(6):
    tables = random_chance_tables(np.random.default_rng(seed), N, A, C)
    found = search(tables, jax.random.PRNGKey(seed), one_hot_roots(ROOTS, N), LEGAL)
    output, trees, state = jax.device_get(found)
    np.testing.assert_array_equal(state, one_hot_roots(ROOTS, N)[:, 0, 0])
    for b, root_row in enumerate(ROOTS):
      root = oracle(config, tables, root_row, LEGAL[b], GAMMA if num_players == 1 else -GAMMA)
      if config is CONFIG:
        want, tolerance = [root.num(a) / config.num_simulations for a in range(A)], 1e-6
        assert output.root_value[b] == pytest.approx(root.value, abs=2e-3)
      else:
        want, tolerance = improved_policy(config, tables, root, LEGAL[b]), 2e-3
        most = [a for a in range(A) if LEGAL[b, a] and root.num(a) == max(map(root.num, range(A)))]
        assert output.action[b] == max(most, key=lambda a: want[a])
      np.testing.assert_allclose(output.action_probs[b], want, atol=tolerance)
      outcomes = np.zeros((A, C))
      for a, child in root.children.items():
        assert output.q_values[b, a] == pytest.approx(child.value, abs=2e-3)
        outcomes[a] = softmax(tables["chance"][child.state])
      np.testing.assert_allclose(output.chance_probs[b], outcomes, atol=1e-5)
      assert LEGAL[b, int(output.action[b])]
      check_tree(jax.tree_util.tree_map(lambda x, b=b: np.asarray(x[b]), trees), root, tables)


def check_tree(tree, root, tables):
  """Asserts that `plain_tree` gives the oracle's nodes."""
  nodes = {0: root}
  for i in range(1, CONFIG.num_simulations + 1):
    above = nodes[int(tree.parent[i])]
    nodes[i] = node = above.children[int(tree.action[i])]
    assert tree.is_chance[i] == node.is_chance != above.is_chance
    assert tree.is_outcome[i] == above.is_chance
    assert (tree.visits[i], tree.depth[i]) == (node.visits, tree.depth[tree.parent[i]] + 1)
    assert tree.value[i] == pytest.approx(node.value, abs=2e-3)
    if above.is_chance:
      prior = softmax(tables["chance"][above.state])[tree.action[i]]
      assert tree.prior[i] == pytest.approx(prior, abs=1e-5)
      assert tree.reward[i] == pytest.approx(tables["reward"][above.state, tree.action[i]], abs=2e-3)
    else:
      assert tree.reward[i] == 0
    if tree.parent[i] and not above.is_chance:
      assert tree.prior[i] == pytest.approx(softmax(tables["logits"][above.state])[tree.action[i]], abs=1e-5)
  assert len(nodes) == CONFIG.num_simulations + 1


@pytest.mark.slow
@pytest.mark.parametrize("num_players", [1, 2])
def test_reward_of_an_afterstate(num_players):
  """Rewards and Q-values are those of a model whose outcomes all have the reward of the afterstate."""
  tables = random_chance_tables(np.random.default_rng(0), N, A, C)
  tables["reward"] = np.repeat(tables["reward"][:, :1], C, axis=1)
  left = tables | {"after_value": (tables["after_value"] - tables["reward"][:, 0]) / GAMMA}
  roots, found = one_hot_roots(ROOTS, N), []
  for model, own in ((MODEL, tables), (REWARD_FIRST, left)):
    found.append(compiled(model, CONFIG, GAMMA, num_players)(own, jax.random.PRNGKey(0), roots, LEGAL)[:2])
  (output, trees), (other, other_trees) = found
  np.testing.assert_array_equal(other.action_probs, output.action_probs)
  np.testing.assert_allclose(other.q_values, output.q_values, atol=2e-3)
  np.testing.assert_allclose(other_trees.reward, trees.reward, atol=2e-3)
  np.testing.assert_allclose(other_trees.value, trees.value, atol=2e-3)


@pytest.mark.slow
def test_max_depth_counts_afterstates():
  config = CONFIG.model_copy(update={"max_depth": 2})
  tables = random_chance_tables(np.random.default_rng(0), N, A, C)
  _, trees, _ = compiled(MODEL, config, GAMMA, 1)(
    tables, jax.random.PRNGKey(0), one_hot_roots(ROOTS, N), LEGAL
  )
  assert trees.depth.max() == 2
  assert not np.asarray(trees.is_chance)[np.asarray(trees.visits) == 0].any()


SAFE, RISK = 1, 2
HEADS_PROB, SAFE_REWARD = 0.6, 0.7
START, HEADS, TAILS, END, AFTER_RISK, AFTER_WIN, AFTER_LOSS, AFTER_PASS, AFTER_SAFE = range(9)


def coin_with_chance():
  """Returns tables with the true dynamics of `tiny:coin`, the optimal values, and optimal play after risk."""
  size = 9
  tables = {
    "after_state": np.full((size, A), AFTER_PASS, np.int32),
    "after_value": np.zeros(size, np.float32),
    "chance": np.full((size, C), -1e9, np.float32),
    "next_state": np.full((size, C), END, np.int32),
    "reward": np.zeros((size, C), np.float32),
    "value": np.zeros(size, np.float32),
    "logits": np.zeros((size, A), np.float32),
  }
  tables["logits"][:, [0, 3]] = -1e9
  tables["logits"][HEADS, RISK] = tables["logits"][TAILS, SAFE] = 4.0
  tables["value"][[START, HEADS]] = SAFE_REWARD, 1.0
  tables["after_value"][[AFTER_RISK, AFTER_WIN, AFTER_LOSS, AFTER_SAFE]] = HEADS_PROB, 1.0, -1.0, SAFE_REWARD
  tables["after_state"][START, [SAFE, RISK]] = AFTER_SAFE, AFTER_RISK
  tables["after_state"][[HEADS, TAILS], RISK] = AFTER_WIN, AFTER_LOSS
  tables["chance"][:, 0] = 0
  tables["chance"][AFTER_RISK, :2] = np.log([HEADS_PROB, 1 - HEADS_PROB])
  tables["next_state"][AFTER_RISK, :2] = HEADS, TAILS
  tables["reward"][[AFTER_SAFE, AFTER_WIN, AFTER_LOSS], 0] = SAFE_REWARD, 1.0, -1.0
  return tables


def coin_without_chance(wrong: float):
  """Returns tables of the deterministic model that best fits an agent's training data.

  The agent's second action is wrong with probability `wrong`. After the first risk, the model has one state
  with the true value. Its reward for a second risk is the mean over the data, where heads mostly came before.
  """
  seen = 1
  tables = {
    "next_state": np.full((9, A), END, np.int32),
    "reward": np.zeros((9, A), np.float32),
    "value": np.zeros(9, np.float32),
    "logits": np.zeros((9, A), np.float32),
  }
  tables["logits"][:, [0, 3]] = -1e9
  tables["next_state"][START, RISK] = seen
  tables["reward"][START, SAFE] = SAFE_REWARD
  tables["value"][[START, seen]] = SAFE_REWARD, HEADS_PROB
  right, mistaken = HEADS_PROB * (1 - wrong), (1 - HEADS_PROB) * wrong
  tables["reward"][seen, RISK] = (right - mistaken) / (right + mistaken)
  return tables


def coin_q_value(model, config, tables):
  """Returns the search's Q-value of risk at the start, and the action that it chooses."""
  legal = np.array([[False, True, True, False]])
  output, _, _ = compiled(model, config, 1.0, 1)(
    tables, jax.random.PRNGKey(0), one_hot_roots([START], 9), legal
  )
  return float(output.q_values[0, RISK]), int(output.action[0])


@pytest.mark.slow
def test_only_chance_nodes_value_the_coin():
  """With chance nodes, the Q-value of risk is within 0.02 of the truth, and the search chooses safe.

  Without them, the model's reward for a second risk is 0.93, because in the data risk mostly follows heads.
  The first risk then seems better than safe.
  """
  search = CONFIG.model_copy(update={"num_simulations": 100})
  q_value, action = coin_q_value(MODEL, search, coin_with_chance())
  assert q_value == pytest.approx(HEADS_PROB, abs=0.02)
  assert action == SAFE
  puct = search.model_copy(update={"algorithm": "puct"})
  q_value, _ = coin_q_value(table_model(A), puct, coin_without_chance(wrong=0.05))
  assert q_value > SAFE_REWARD + 0.1


def slippery_corridor(slip: float, discount: float):
  """Returns tables of `tiny:corridor` with six cells, and the optimal values by value iteration.

  State i is cell i; entering the ends pays 0.1 and 1. Action 1 is left and 2 is right. Row 6 is the
  afterstate after the end; row 7 + 2 · cell + is_right is the afterstate of an action.
  """
  num_cells, size = 6, 20
  reward, value = corridor_values(num_cells, slip, discount)
  entered = reward + discount * value
  tables = {
    "after_state": np.full((size, A), num_cells, np.int32),
    "after_value": np.zeros(size, np.float32),
    "chance": np.full((size, C), -1e9, np.float32),
    "next_state": np.zeros((size, C), np.int32),
    "reward": np.zeros((size, C), np.float32),
    "value": np.zeros(size, np.float32),
    "logits": np.zeros((size, A), np.float32),
  }
  tables["logits"][:, [0, 3]] = -1e9
  tables["logits"][:, 2] = 3.0
  tables["chance"][:, 0] = 0.0
  tables["value"][:num_cells] = value
  for cell in range(1, num_cells - 1):
    for is_right in (0, 1):
      after, step = 7 + 2 * cell + is_right, 2 * is_right - 1
      tables["after_state"][cell, 1 + is_right] = after
      tables["chance"][after, :2] = np.log([1 - slip, slip])
      tables["next_state"][after, :2] = cell + step, cell - step
      tables["reward"][after, :2] = reward[[cell + step, cell - step]]
      tables["after_value"][after] = ((1 - slip) * entered[cell + step]) + slip * entered[cell - step]
  return tables, value


@pytest.mark.slow
def test_search_values_a_slippery_corridor():
  tables, value = slippery_corridor(slip=0.2, discount=GAMMA)
  config = CONFIG.model_copy(update={"num_simulations": 200, "root_value": "improved"})
  legal = np.array([[False, True, True, False]] * 4)
  output, _, _ = compiled(MODEL, config, GAMMA, 1)(
    tables, jax.random.PRNGKey(0), one_hot_roots([1, 2, 3, 4], 20), legal
  )
  np.testing.assert_allclose(output.root_value, value[1:5], atol=0.02)
  np.testing.assert_array_equal(output.action, 2)
