"""Oracle: a PUCT search in plain Python after the paper, independent of mctx.

Source: Schrittwieser et al. 2020, appendix B. Q-values are normalized by the minimum and
the maximum over the node's own value and the Q-values of its visited children; the range has a floor. An
unvisited child gets the minimum.
"""

import dataclasses
import math


@dataclasses.dataclass
class Node:
  state: int
  value_sum: float
  priors: dict[int, float]
  visits: int = 1
  children: dict[int, "Node"] = dataclasses.field(default_factory=dict)
  child_visits: dict[int, int] = dataclasses.field(default_factory=dict)

  @property
  def value(self) -> float:
    return self.value_sum / self.visits


def search(tables, state, legal, *options) -> Node:
  """Searches all actions of a node; those of the root that are legal."""
  count = len(tables["logits"][0])

  def priors_of(state, index):
    logits = [float(v) for v in tables["logits"][state]]
    allowed = [a for a in range(count) if index or legal[a]]
    total = sum(math.exp(logits[a]) for a in allowed)
    return {a: math.exp(logits[a]) / total for a in allowed}

  return _search(tables, state, priors_of, *options)


def search_samples(tables, state, samples, *options) -> Node:
  """Searches given actions: `samples[i]` has those of the i-th node, in order of expansion, with priors."""
  return _search(tables, state, lambda state, index: samples[index], *options)


def _search(tables, state, priors_of, num_simulations, discount, pb_c_init, pb_c_base, floor) -> Node:
  root = Node(state, float(tables["value"][state]), priors_of(state, 0))
  for i in range(1, num_simulations + 1):
    node, path = root, []
    while True:
      action = _select(tables, node, discount, pb_c_init, pb_c_base, floor)
      path.append((node, action))
      if action not in node.children:
        break
      node = node.children[action]
    leaf_state = int(tables["next_state"][node.state, action])
    leaf = Node(leaf_state, float(tables["value"][leaf_state]), priors_of(leaf_state, i))
    node.children[action] = leaf
    backed_up = leaf.value
    for parent, taken in reversed(path):
      backed_up = float(tables["reward"][parent.state, taken]) + discount * backed_up
      parent.value_sum += backed_up
      parent.visits += 1
      parent.child_visits[taken] = parent.child_visits.get(taken, 0) + 1
  return root


def _select(tables, node, discount, pb_c_init, pb_c_base, floor) -> int:
  q = {
    a: float(tables["reward"][node.state, a]) + discount * child.value for a, child in node.children.items()
  }
  low, high = min([node.value, *q.values()]), max([node.value, *q.values()])
  explore = pb_c_init + math.log((node.visits + pb_c_base + 1) / pb_c_base)

  def score(a):
    bonus = explore * node.priors[a] * math.sqrt(node.visits) / (1 + node.child_visits.get(a, 0))
    return bonus + (q.get(a, low) - low) / max(high - low, floor)

  return max(node.priors, key=score)
