"""Tests of pictures of search trees."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from moozi.core.search_record import SearchTree
from moozi.vis import search_tree
from moozi.vis.lettering import text_width
from moozi.vis.search_tree import layout_tree, principal_variation, tree_legend, tree_svg
from tests.vis.trees import make_tree

NAMES = ("dummy", "left", "right", "fire")
SVG = "{http://www.w3.org/2000/svg}"


def small_tree() -> SearchTree:
  """Returns a tree whose root has right (4 visits), left (4), fire (1); below left are fire (2), left (1)."""
  columns = {
    "parent": [-1, 0, 0, 0, 2, 2],
    "action": [-1, 2, 1, 3, 3, 1],
    "depth": [0, 1, 1, 1, 2, 2],
    "visits": [10, 4, 4, 1, 2, 1],
  }
  values = {
    "value": [0.5, 0.25, 0.75, -1.0, 2.0, 3.0],
    "raw_value": [0.125] * 6,
    "reward": [0.0, 1.0, 0.0, 0.0, -1.0, 0.0],
    "prior": [1.0, 0.5, 0.375, 0.125, 0.625, 0.25],
  }
  return SearchTree(
    **{name: np.array(x, np.int32) for name, x in columns.items()},
    **{name: np.array(x, np.float32) for name, x in values.items()},
    is_chance=np.zeros(6, bool),
  )


def test_principal_variation():
  tree = small_tree()
  assert principal_variation(tree, action=1) == [0, 2, 4]
  assert principal_variation(tree, action=3) == [0, 3]
  # Among equal visits, the node that was created first is chosen.
  assert principal_variation(tree) == [0, 1]
  assert principal_variation(tree, action=7) == [0, 1]


def test_rows():
  layout = layout_tree(small_tree())
  assert layout.node.tolist() == [0, 1, 2, 3, 4, 5]
  assert layout.parent.tolist() == [-1, 0, 0, 0, 2, 2]
  # The leaves from top to bottom are left-left, left-fire, right and fire.
  assert layout.row.tolist() == [1.75, 2.0, 0.5, 3.0, 1.0, 0.0]
  assert layout.num_rows == 4
  assert not layout.num_left_out.any()


def test_pruning_counts_left_out():
  layout = layout_tree(small_tree(), max_nodes=3, action=1)
  # The principal variation 0, 2, 4 is kept. Below the root, nodes 1 and 3 are left out; below node 2, node 5.
  assert layout.node.tolist() == [0, 2, 4]
  assert layout.parent.tolist() == [-1, 0, 1]
  assert layout.num_left_out.tolist() == [2, 1, 0]
  assert layout.is_principal.all()
  four = layout_tree(small_tree(), max_nodes=4, action=1)
  assert four.node.tolist() == [0, 1, 2, 4]
  assert four.is_principal.tolist() == [True, False, True, True]


@pytest.mark.parametrize("max_nodes", [1, 5, 20, 400])
@pytest.mark.parametrize("seed", range(4))
def test_pruned_tree_is_consistent(seed, max_nodes):
  tree = make_tree(150, seed=seed)
  layout = layout_tree(tree, max_nodes)
  assert layout.node[0] == 0
  assert (layout.parent[1:] >= 0).all()
  np.testing.assert_array_equal(layout.node[layout.parent[1:]], tree.parent[layout.node[1:]])
  assert len(layout.node) + layout.num_left_out.sum() == tree.num_nodes
  if max_nodes >= len(principal_variation(tree)):
    assert len(layout.node) == min(max_nodes, tree.num_nodes)
    kept = np.isin(np.arange(tree.num_nodes), layout.node)
    off_line = ~np.isin(np.arange(tree.num_nodes), principal_variation(tree))
    if (~kept).any() and (kept & off_line).any():
      assert tree.visits[kept & off_line].min() >= tree.visits[~kept].max()
  # Each row has exactly one leaf.
  leaves = ~np.isin(np.arange(len(layout.node)), layout.parent)
  assert sorted(layout.row[leaves]) == list(range(layout.num_rows))


def test_chain_deeper_than_recursion_limit():
  num = 3000
  order = np.arange(num, dtype=np.int32)
  columns = {"parent": order - 1, "depth": order, "visits": order[::-1] + 1}
  values = dict.fromkeys(("value", "raw_value", "reward", "prior"), np.zeros(num, np.float32))
  tree = SearchTree(action=np.ones(num, np.int32), is_chance=np.zeros(num, bool), **columns, **values)
  assert layout_tree(tree, max_nodes=num).num_rows == 1


def test_no_nodes_raises():
  with pytest.raises(ValueError, match="max_nodes=0"):
    layout_tree(small_tree(), max_nodes=0)


def draw(**changes):
  arguments = {"signed_discount": 0.5, "caption": ["tiny:catch <&>"], "action": 1} | changes
  return tree_svg(small_tree(), NAMES, **arguments)


def texts(svg):
  return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_text_fits_box():
  tree = small_tree()
  tree.value[:], tree.reward[1:] = [-2.1e-5, -0.125, -123.4, -1e7, -1.851e-5, -0.0999], -2.24e-5
  names = ("dummy", "fire and turn to the left", "left", "right")
  svg = tree_svg(tree, names, signed_discount=0.997)
  shown = texts(svg)
  assert "Q -0.125  V -0.125  R -2e-5" in shown
  assert any(text.startswith("fire and") and "…  N 4  P 0.38" in text for text in shown)
  width = search_tree._BOX[0] - 2 * search_tree._INDENT
  assert max(text_width(text, search_tree._FONT_SIZE) for text in shown[1:]) <= width


def test_legend_explains_every_letter_of_a_node():
  """V is the mean value of a node everywhere; the value that a search returns is called the search value."""
  tree = small_tree()
  (legend,) = tree_legend(tree, 0.5)
  svg = tree_svg(tree, NAMES, signed_discount=0.5)
  letters = {word for text in texts(svg) for word in text.split() if word in ("N", "P", "Q", "V", "R", "net")}
  assert letters == {"N", "P", "Q", "V", "R", "net"}
  assert letters <= set(legend.replace(",", "").split())
