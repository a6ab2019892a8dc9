"""The result of one search, with a table and a drawing for notebooks."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from moozi.api.run_access import check_number
from moozi.core.config import Config
from moozi.core.factors import Factors
from moozi.core.pytree import map_fields
from moozi.core.records import BatchedTimeStep
from moozi.core.search_record import SearchTree
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.text import html_text

if TYPE_CHECKING:
  import pandas as pd

  from moozi.agent.agent import Decision

_MAX_ROWS = 30


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Search:
  """One search of a frame. Each array has an entry for each of the environment's E actions.

  In an environment with more than 32 joint actions (`EnvSpec.is_factored`), the E actions are those that the
  search sampled. Values are in the environment's units, for the player to move.

  Attributes:
    env: the environment's name.
    spec: its specification.
    action: the number of the action that the search chose.
    actions: the number of each of the E actions, in increasing order.
    action_names: a name for each of the E actions.
    legal: whether each action is legal. Probabilities, Q-values and visits are 0 for illegal actions.
    policy: the search policy.
    prior: the network's policy before the search.
    value: the value after the search.
    prior_value: the network's value before the search.
    q_values: the Q-value of each action after the search; actions without a visit have the mixed value of
      Gumbel MuZero.
    network_q_values: the Q-value of each action without a search: the reward of one step of the model
      (AlphaZero: of the rules) plus the discounted network value of the next state. With chance nodes, the
      afterstate's Q-value.
    visits: number of simulations that took the action at the root.
    num_simulations: number of simulations.
    tree: the search tree. Its actions are numbered from 1, because 0 is the dummy action.
    signed_discount: the factor by which the search multiplies a child's value; −γ with two players.
  """

  env: str
  spec: EnvSpec
  action: int
  actions: Int[np.ndarray, " E"]
  action_names: tuple[str, ...]
  legal: Bool[np.ndarray, " E"]
  policy: Float[np.ndarray, " E"]
  prior: Float[np.ndarray, " E"]
  value: float
  prior_value: float
  q_values: Float[np.ndarray, " E"]
  network_q_values: Float[np.ndarray, " E"]
  visits: Int[np.ndarray, " E"]
  num_simulations: int
  tree: SearchTree
  signed_discount: float

  @property
  def own_action(self) -> Any:
    """The chosen action in the environment's own form, which `Agent.act` returns; `action` if it has none."""
    factors = self.spec.factors
    return factors.own_action(self.action) if isinstance(factors, Factors) else self.action

  def to_frame(self) -> "pd.DataFrame":
    """Returns a row for each legal action, by its number; `q` is NaN for an action without a visit."""
    import pandas as pd

    at = np.flatnonzero(self.legal)
    columns: dict[str, Any] = {
      "name": [self.action_names[a] for a in at],
      "prior": self.prior[at],
      "policy": self.policy[at],
      "visits": self.visits[at],
      "network_q": self.network_q_values[at],
      "q": np.where(self.visits[at] > 0, self.q_values[at], np.nan),
    }
    return pd.DataFrame(columns, index=pd.Index(self.actions[at], name="action"))

  def __str__(self) -> str:
    from moozi.vis.action_names import action_name

    return (
      f"{self.env}: {action_name(self.spec, self.action + 1)}, search value {self.value:+.3f} after "
      f"{self.num_simulations} simulations, network value {self.prior_value:+.3f}"
    )

  __repr__ = __str__

  def svg(self, max_nodes: int = 60) -> str:
    """Returns an SVG drawing of the tree: its `max_nodes` most visited nodes, and the principal variation.

    Raises: UserError: `max_nodes` is not an integer of at least 1.
    """
    check_number("max_nodes", max_nodes)
    return self._draw(max_nodes, [str(self)])

  def _draw(self, max_nodes: int, title: list[str]) -> str:
    from moozi.vis.action_names import dimensions_text, edge_labels
    from moozi.vis.search_tree import tree_legend, tree_svg

    legend = tree_legend(self.tree, self.signed_discount, dimensions_text(self.spec))
    return tree_svg(
      self.tree,
      edge_labels(self.spec, self.tree),
      signed_discount=self.signed_discount,
      caption=[*title, *legend],
      action=self.action + 1,
      max_nodes=max_nodes,
    )

  def _repr_svg_(self) -> str:
    return self.svg()

  def _repr_html_(self) -> str:
    names = ("action", "prior", "policy", "visits", "network Q", "Q")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    rows: list[str] = []
    for a in np.argsort(-self.policy, kind="stable"):
      if not self.legal[a] or len(rows) == _MAX_ROWS:
        continue
      q = f"{self.q_values[a]:+.3f}" if self.visits[a] else "–"
      cells = [f"{self.prior[a]:.3f}", f"{self.policy[a]:.3f}", str(self.visits[a])]
      cells += [f"{self.network_q_values[a]:+.3f}", q]
      text = "".join(f"<td>{cell}</td>" for cell in cells)
      rows.append(f'<tr><th scope="row">{html_text(self.action_names[a])}</th>{text}</tr>')
    picture = self._draw(60, []).replace("<svg ", '<svg role="img" aria-label="search tree" ', 1)
    return (
      f'<div><p>{html_text(str(self))}</p><table style="text-align:right"><thead><tr>{head}</tr></thead>'
      f"<tbody>{''.join(rows)}</tbody></table>"
      f'<div tabindex="0" role="region" aria-label="search tree" style="overflow:auto;max-height:40em">'
      f"{picture}</div></div>"
    )


def search_of(
  decision: "Decision", step: BatchedTimeStep, config: Config, spec: EnvSpec, num_simulations: int
) -> Search:
  """Returns a decision as a `Search`. The decision is on one frame, by an agent of `analysis.inspection`."""
  from moozi.analysis.inspection import compact_tree
  from moozi.ops.actions import joint_probs
  from moozi.ops.signs import search_discount
  from moozi.vis.action_names import names_of

  found = decision.extras
  policy, prior = np.asarray(decision.action_probs), np.asarray(found["prior_probs"])
  # The edges of the root, in the agent's action space; without sampling, the first one is the dummy.
  edges, legal = np.arange(spec.policy_size), step.legal_actions_mask[0]
  if spec.is_factored:
    edges, policy = found["sampled_actions"][0], found["sampled_probs"]
    prior, legal = joint_probs(prior, edges[None], spec.policy_groups), np.ones(len(edges), bool)
  is_shown = edges != DUMMY_ACTION
  edges, legal = edges[is_shown], legal[is_shown]

  def of_actions(values: np.ndarray) -> np.ndarray:
    return np.where(legal, values[0, is_shown], 0).astype(values.dtype)

  tree = compact_tree(map_fields(lambda x: x[0], found["tree"]))
  return Search(
    env=spec.name,
    spec=spec,
    action=int(decision.action[0]) - 1,
    actions=edges - 1,
    action_names=tuple(names_of(spec, edges.tolist())),
    legal=legal,
    policy=of_actions(policy),
    prior=of_actions(prior),
    value=float(decision.root_value[0]),
    prior_value=float(found["prior_value"][0]),
    q_values=of_actions(found["q_values"]),
    network_q_values=of_actions(found["network_q_values"]),
    visits=tree.root_visits(edges),
    num_simulations=num_simulations,
    tree=tree,
    signed_discount=search_discount(config.targets.discount, spec.num_players),
  )
