"""Draws the most visited nodes of a search tree as SVG; marks the principal variation."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from moozi.core.search_record import SearchTree
from moozi.core.spec import DUMMY_ACTION
from moozi.core.text import html_text
from moozi.vis.lettering import fit, rounded, short_figure, text_width

DEFAULT_MAX_NODES = 60

_BOX = (172, 40)
_COLUMN, _ROW = 216, 60
_MARGIN = 16
_LINE = 17
_INDENT = 7  # left margin of the text in a box
_CHANCE_INDENT = 14
_FONT_SIZE = 12
_PAPER, _INK, _FAINT = "#ffffff", "#1b1b1f", "#6a6a72"
_EDGE, _BAR = "#a9a9b4", "#9ccbe8"
# Vermilion of Okabe and Ito (2008), distinct from the grey and blue above under common color blindnesses.
_PRINCIPAL = "#d55e00"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeLayout:
  """The M drawn nodes of a tree and their positions. The root is on the left; each leaf has its own row."""

  node: Int[np.ndarray, " M"]  # indices into the tree; the root first, parents before children
  parent: Int[np.ndarray, " M"]  # indices into these M nodes; -1 for the root
  row: Float[np.ndarray, " M"]  # an integer for leaves, else the middle of the children's rows
  num_rows: int
  is_principal: Bool[np.ndarray, " M"]
  num_left_out: Int[np.ndarray, " M"]  # number of undrawn nodes whose nearest drawn ancestor is this node


def principal_variation(tree: SearchTree, action: int | None = None) -> list[int]:
  """Returns the nodes of the principal variation, the root first.

  The line plays `action` at the root, and then follows the most visited child. If `action` is None or has no
  node, it follows the most visited child from the root on. Of equally visited nodes, the oldest is taken.
  """
  line, node = [0], 0
  while True:
    children = np.flatnonzero(tree.parent == node)
    if len(children) == 0:
      return line
    chosen = children[tree.action[children] == action] if node == 0 else children[:0]
    node = int(chosen[0] if len(chosen) else children[np.argmax(tree.visits[children])])
    line.append(node)


def layout_tree(
  tree: SearchTree, max_nodes: int = DEFAULT_MAX_NODES, action: int | None = None
) -> TreeLayout:
  """Prunes a tree to its most visited nodes, and assigns rows.

  All nodes of `principal_variation(tree, action)` are kept, even if they are more than `max_nodes`. Of
  equally visited nodes, the older ones are kept.

  Raises: ValueError: `max_nodes` is below 1.
  """
  if max_nodes < 1:
    raise ValueError(f"max_nodes={max_nodes}: must be at least 1")
  line = principal_variation(tree, action)
  # A child has at most as many visits as its parent and is newer, so no node is kept without its parent.
  order = np.lexsort((np.arange(tree.num_nodes), -tree.visits))
  others = order[~np.isin(order, line)][: max(0, max_nodes - len(line))]
  node = np.sort(np.concatenate([np.asarray(line, np.int64), others]))
  number = np.full(tree.num_nodes, -1, np.int64)
  number[node] = np.arange(len(node))
  parent = np.where(tree.parent[node] >= 0, number[tree.parent[node]], -1)
  children: list[list[int]] = [[] for _ in node]
  for i in range(1, len(node)):
    children[parent[i]].append(i)
  row = np.zeros(len(node))
  num_rows = 0
  for i in _depth_first(children, tree.action[node]):
    if children[i]:
      row[i] = (row[children[i]].min() + row[children[i]].max()) / 2
    else:
      row[i] = num_rows
      num_rows += 1
  # A node that is not drawn is counted at its nearest drawn ancestor.
  num_left_out = np.zeros(len(node), np.int64)
  for i in np.flatnonzero(number < 0).tolist():
    number[i] = number[tree.parent[i]]
    num_left_out[number[i]] += 1
  return TreeLayout(
    node=node,
    parent=parent,
    row=row,
    num_rows=num_rows,
    is_principal=np.isin(node, line),
    num_left_out=num_left_out,
  )


def tree_legend(tree: SearchTree, signed_discount: float, dimensions: str = "") -> list[str]:
  """Returns the lines of the legend of a tree's picture.

  Args:
    dimensions: the names of the dimensions whose values name the actions (`action_names.dimensions_text`).
  """
  letters = "N visits, P network's probability, Q value of the action, V mean value of the node, R reward"
  legend = [f"{letters}, net network value"]
  if tree.is_chance.any():
    legend += [
      "round ends: the action is taken, its outcome is not drawn; code: an outcome, with its probability P"
    ]
  if dimensions:
    legend += [f"actions are sampled, which P is corrected for, and named by their values of: {dimensions}"]
  if ((tree.action == DUMMY_ACTION) & ~tree.is_outcome).any():
    legend += ["end: the action after an episode's end, which the model expects there"]
  if signed_discount < 0:
    legend += ["Q and R are for the player who moves, V is for the player to move next"]
  return legend


def tree_svg(
  tree: SearchTree,
  names: Sequence[str] | Mapping[int, str],
  *,
  signed_discount: float,
  caption: Sequence[str] = (),
  action: int | None = None,
  max_nodes: int = DEFAULT_MAX_NODES,
) -> str:
  """Returns the picture of a tree, as the text of an SVG element.

  Args:
    names: names of the actions by their numbers in the agent's action space.
    signed_discount: factor that converts a child's value to its parent's view: the discount, negative with
      two players.
    caption: lines above the picture.
    action, max_nodes: as in `layout_tree`.
  """
  layout = layout_tree(tree, max_nodes, action)
  tally = f"{tree.num_nodes} nodes"
  if left_out := tree.num_nodes - len(layout.node):
    tally = f"the {len(layout.node)} most visited of {tally}; {left_out} are left out"
  caption = [*caption, tally]
  top = _MARGIN + _LINE * len(caption) + 8
  left = _MARGIN + _COLUMN * tree.depth[layout.node]
  width = max(int(left.max()) + _BOX[0] + _MARGIN, *(_MARGIN * 2 + 7 * len(line) for line in caption))
  height = top + _ROW * layout.num_rows
  texts = [
    _text(_MARGIN, _MARGIN + _LINE * (i + 0.5), line, is_bold=i == 0) for i, line in enumerate(caption)
  ]
  lines, boxes = _nodes(tree, layout, left, top, names, signed_discount, texts)
  head = [
    f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"',
    f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="{_FONT_SIZE}">',
    f'<rect width="{width}" height="{height}" fill="{_PAPER}"/>',
  ]
  return "\n".join([*head, *lines, *boxes, *texts, "</svg>", ""])


def _depth_first(children: list[list[int]], action: np.ndarray) -> list[int]:
  """Returns the nodes in postorder, children sorted by action. Not recursive: trees can be very deep."""
  out, stack = [], [0]
  while stack:
    i = stack.pop()
    out.append(i)
    stack.extend(sorted(children[i], key=lambda c: action[c]))
  # `out` is a preorder that visits the last child first; reversed, it is a postorder, first child first.
  return out[::-1]


def _nodes(
  tree: SearchTree,
  layout: TreeLayout,
  left: Int[np.ndarray, "N"],
  top: int,
  names: Sequence[str] | Mapping[int, str],
  signed_discount: float,
  texts: list[str],
) -> tuple[list[str], list[str]]:
  """Returns the elements of edges and boxes, and appends the text of the boxes to `texts`.

  Args:
    left: the left edge of each node's box.
    top: the upper edge of the first row.
  """
  middle = top + _ROW * layout.row + _BOX[1] / 2
  share = tree.visits[layout.node] / max(1, int(tree.visits[0]))
  edge_names, q_values = tree.edge_names(names), tree.q_values(signed_discount)
  lines, boxes = [], []
  for i in range(1, len(layout.node)):
    p = layout.parent[i]
    color = _PRINCIPAL if layout.is_principal[i] else _EDGE
    x0, y0, x1, y1 = (float(v) for v in (left[p] + _BOX[0], middle[p], left[i], middle[i]))
    bend = (x0 + x1) / 2
    path = f"M{x0:g} {y0:g}C{bend:g} {y0:g} {bend:g} {y1:g} {x1:g} {y1:g}"
    width = float(1 + 5 * share[i])
    lines.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{width:.2f}"/>')
  for i, node in enumerate(layout.node):
    x, y = float(left[i]), float(middle[i] - _BOX[1] / 2)
    outline = _PRINCIPAL if layout.is_principal[i] else _FAINT
    # The box of a chance node has round ends; its text and bar are indented to fit between them.
    is_chance = bool(tree.is_chance[node])
    inset, radius = (_BOX[1] / 2 - 2, _BOX[1] / 2) if is_chance else (2.0, 4.0)
    edge = f' stroke="{outline}" stroke-width="{2 if layout.is_principal[i] else 1}"'
    boxes.append(_box(x, y, *_BOX, radius, _PAPER, edge))
    bar = float((_BOX[0] - 2 * inset) * share[i])
    boxes.append(_box(x + inset, y + _BOX[1] - 5, bar, 3, 1.0, _BAR))
    indent = _CHANCE_INDENT if is_chance else _INDENT
    first, second = _node_lines(tree, int(node), edge_names[node], q_values[node], indent)
    texts += [_text(x + indent, y + 10, first, is_bold=True), _text(x + indent, y + 25, second)]
    if layout.num_left_out[i]:
      text = f"+ {layout.num_left_out[i]} left out"
      texts.append(_text(x + _INDENT, y + _BOX[1] + 8, text, color=_FAINT))
  return lines, boxes


def _node_lines(tree: SearchTree, node: int, edge_name: str, q_value: float, indent: int) -> tuple[str, str]:
  """Returns the two lines of a node's box: visits N and prior P; action value Q, mean value V and reward R.

  The root has N in its first line, V and the network's value in its second. A chance node has no reward, and
  its value is Q: its second line has Q and the network's value.
  """
  value, visits = short_figure(float(tree.value[node])), int(tree.visits[node])
  raw_value = short_figure(float(tree.raw_value[node]))
  if tree.parent[node] < 0:
    return f"root  N {visits}", f"V {value}  net {raw_value}"
  numbers = f"  N {visits}  P {float(tree.prior[node]):.2f}"
  name = fit(edge_name, _BOX[0] - 4 * indent - text_width(numbers, _FONT_SIZE), _FONT_SIZE)
  if tree.is_chance[node]:
    return f"{name}{numbers}", f"Q {value}  net {raw_value}"
  reward = short_figure(rounded(float(tree.reward[node])))
  return f"{name}{numbers}", f"Q {short_figure(float(q_value))}  V {value}  R {reward}"


def _box(x: float, y: float, w: float, h: float, radius: float, fill: str, edge: str = "") -> str:
  return f'<rect x="{x:g}" y="{y:g}" width="{w:.4g}" height="{h:g}" rx="{radius:g}" fill="{fill}"{edge}/>'


def _text(x: float, y: float, text: str, *, color: str = _INK, is_bold: bool = False) -> str:
  """Returns a text whose left end, vertically centered, is at (x, y)."""
  weight = ' font-weight="bold"' if is_bold else ""
  return (
    f'<text x="{x:g}" y="{y:g}" dominant-baseline="central" fill="{color}"{weight} '
    f'xml:space="preserve">{html_text(text)}</text>'
  )
