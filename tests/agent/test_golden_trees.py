"""Tests that the search trees of a tiny fixed model equal those stored as JSON.

After an intended change, `python -m tests.agent.test_golden_trees` rewrites the file; review the diff.
"""

import json
import pathlib

import jax
import numpy as np
import pytest

from moozi.agent.planner import plan
from moozi.core.config import PlannerConfig
from tests.agent.tiny import one_hot_roots, random_tables, table_model
from tests.fast_jit import fast_jit

PATH = pathlib.Path(__file__).parents[1] / "golden" / "search_trees.json"
LEGAL = np.array([[False, True, True, True], [True, True, False, True]])
CASES = {
  "puct": (PlannerConfig(algorithm="puct", num_simulations=10, q_range_floor=1e-8), 1),
  "puct_two_players": (
    PlannerConfig(algorithm="puct", num_simulations=10, pb_c_init=2.25, q_range_floor=0.1),
    2,
  ),
  "gumbel": (
    PlannerConfig(num_simulations=10, q_range_floor=1e-8, gumbel_scale=0.0, max_num_considered_actions=2),
    1,
  ),
  "gumbel_two_players": (
    PlannerConfig(num_simulations=10, q_range_floor=1e-8, gumbel_scale=0.0),
    2,
  ),
}
TREE_FIELDS = (
  "children_index",
  "children_visits",
  "node_visits",
  "node_values",
  "children_rewards",
  "parents",
)


def search(name: str, tables: dict) -> dict:
  """Returns the search trees of a case, from states 0 and 1, as lists."""
  config, num_players = CASES[name]
  tables = {k: np.asarray(v, np.int32 if k == "next_state" else np.float32) for k, v in tables.items()}
  history = one_hot_roots([0, 1], len(tables["value"]))

  def run(tables, key):
    return plan(
      table_model(4), config, 0.9, num_players, tables, {}, key, history, LEGAL, 0.0, with_tree=True
    )

  out = fast_jit(run)(tables, jax.random.PRNGKey(0))
  result = {field: getattr(out, field) for field in ("action", "action_probs", "root_value", "q_values")}
  result |= {f"tree/{field}": getattr(out.tree, field) for field in TREE_FIELDS}
  return {k: np.asarray(v).tolist() for k, v in result.items()}


@pytest.mark.parametrize(
  "name",
  [
    "gumbel",
    *(pytest.param(c, marks=pytest.mark.slow) for c in ("puct", "puct_two_players", "gumbel_two_players")),
  ],
)
def test_tree_equals_golden(name):
  golden = json.loads(PATH.read_text())
  got = search(name, golden["tables"])
  assert got.keys() == golden["trees"][name].keys()
  for field, value in got.items():
    want = np.asarray(golden["trees"][name][field])
    if want.dtype.kind == "i":
      np.testing.assert_array_equal(value, want, err_msg=field)
    else:
      np.testing.assert_allclose(value, want, atol=1e-4, err_msg=field)


def test_golden_trees_differ():
  trees = json.loads(PATH.read_text())["trees"]
  assert len({json.dumps(tree["tree/children_visits"]) for tree in trees.values()}) == len(CASES)


def write() -> None:
  tables = {k: np.round(v, 3).tolist() for k, v in random_tables(np.random.default_rng(11), 5, 4).items()}
  trees = {name: search(name, tables) for name in CASES}
  rounded = json.loads(
    json.dumps({"tables": tables, "trees": trees}), parse_float=lambda x: round(float(x), 6)
  )
  PATH.write_text(json.dumps(rounded, separators=(",", ":")).replace('],"', '],\n"') + "\n")


if __name__ == "__main__":
  write()
