"""Records of played episodes: frames and decisions, and in inspected ones the searches and predictions.

Arrays are NumPy; inside compiled functions they are JAX's. Axes: B searches, T frames, K unroll, E choices, N
nodes of a tree, H W C frame.

The *choices* of a step are the actions for which it has a policy and Q-values. They are all A actions of the
agent's action space. Where joint actions have no entries of their own (`EnvSpec.is_factored`), they are those
that the search sampled, or the most probable ones without a search. With continuous actions there are none.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, Int32, Num, Shaped, UInt8

from moozi.core.pytree import record
from moozi.core.types import AnyArray


@record
class SearchTree:
  """One search's tree as plain arrays. Node 0 is the root; a parent comes before its children.

  Values are for the player to move at the node; a reward is for the player who moved into it. The Q-value
  of an edge, for the player who moved, is reward + signed discount · value (`ops.signs.search_discount`).
  At a chance node the player has moved and the outcome is not drawn yet: its value is the Q-value of the
  action.

  Attributes:
    parent: -1 at the root.
    action: the agent's action from the parent to this node, or the outcome's code if the parent is a chance
      node; -1 at the root.
    depth: 0 at the root.
    visits: visit count.
    value: env units: the mean over the visits.
    raw_value: env units: the network's value of the node; 0 where the true rules end the game.
    reward: env units: the reward on entering the node, by the model or the true rules; 0 at the root.
    prior: the action's prior probability at the parent, as the search used it; 1 at the root. Priors of the
      root's children are over the legal actions, with Dirichlet noise if there is any. If the parent is a
      chance node, the model's probability of the outcome.
    is_chance: whether the node is a chance node.
  """

  parent: Int32[AnyArray, "*B N"]
  action: Int32[AnyArray, "*B N"]
  depth: Int32[AnyArray, "*B N"]
  visits: Int32[AnyArray, "*B N"]
  value: Float32[AnyArray, "*B N"]
  raw_value: Float32[AnyArray, "*B N"]
  reward: Float32[AnyArray, "*B N"]
  prior: Float32[AnyArray, "*B N"]
  is_chance: Bool[AnyArray, "*B N"]

  @property
  def is_outcome(self) -> Bool[AnyArray, "N"]:
    """Whether the edge to each node is a chance outcome, [N]; for one tree."""
    return (self.parent >= 0) & self.is_chance[self.parent]

  def q_values(self, signed_discount: float) -> Float32[AnyArray, "N"]:
    """Returns the Q-value of the edge to each node, for the player who moved, [N]; for one tree.

    The entry of the root has no meaning.
    """
    return np.where(self.is_chance, self.value, self.reward + np.float32(signed_discount) * self.value)

  def edge_names(self, action_names: Sequence[str] | Mapping[int, str]) -> list[str]:
    """Returns the name of the edge to each node: the action, `code 3` for an outcome, `root` for the root."""
    pairs = zip(self.action[1:].tolist(), self.is_outcome[1:].tolist(), strict=True)
    names = [f"code {edge}" if is_outcome else action_names[edge] for edge, is_outcome in pairs]
    return ["root", *names]

  def root_visits(self, actions: Int[np.ndarray, "E"]) -> Int32[np.ndarray, "E"]:
    """Returns the visits of each of these actions at the root; for one tree."""
    at_root = self.depth == 1
    visits = dict(zip(self.action[at_root].tolist(), self.visits[at_root].tolist(), strict=True))
    return np.array([visits.get(action, 0) for action in actions.tolist()], np.int32)

  @property
  def num_nodes(self) -> int:
    """The number of nodes, N."""
    return len(self.parent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayedStep:
  """One step of an episode with the agent's decision; fields as in PlayedEpisode and BatchedTimeStep.

  Without a search, `action_probs` is the policy of the agent's decision. On a last frame without a decision
  it is all zeros, or empty if choices are sampled.

  Attributes:
    action: in the agent's action space. A continuous one is a row [D] float32, of NaN on a last frame.
    is_agents: whether the agent chooses the action; true on an episode's last frame.
    extras: those of the agent's decision.
  """

  frame: Shaped[AnyArray, "H W C"]
  picture: UInt8[AnyArray, "h w 3"] | None
  to_play: int
  seat: int | None
  reward: float
  total: float
  legal_actions_mask: Bool[AnyArray, "E"]
  is_first: bool
  is_last: bool
  is_truncated: bool
  is_agents: bool
  action: Any
  root_value: float
  action_probs: Float32[AnyArray, "E"]
  choices: Int32[AnyArray, "E"] | None = None
  extras: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayedEpisode:
  """An episode of evaluation with the agent's decisions, for GIFs, the report and inspection.

  T is the number of recorded frames. The last frame of a whole episode has no decision: its action is the
  dummy, or NaN with continuous actions. A terminal frame has no search. Values are for the player to move,
  and rewards for the player who moved.

  Attributes:
    index: the episode's index in its evaluation.
    seat: the agent's player; None without an opponent (one player, or self-play).
    length: number of actions of the whole episode; T is `length` + 1 if the whole episode is recorded.
    frames: the observations, of the spec's dtype.
    pictures: the environment's own images (`ops.pictures`), fitted into the first one's size; None if it has
      none, or one could not be drawn.
    to_play: the player to move.
    actions: the action taken, in the agent's action space; continuous actions are [T, D] float32.
    rewards: env units, received on entering the frame.
    totals: the agent's undiscounted return up to each frame; with two players, that of player `index` % 2.
    root_values: env units: the search's, or those of the agent's decision without a search. On a last frame
      without a decision, 0 if it is terminal, and NaN if it is truncated.
    action_probs: the policy over the choices, of the search or else of the decision; zeros without either.
    choices: the choices in increasing order, in the agent's action space; the dummy fills rows that have
      fewer. None: all actions, so that E is A.
    chance_probs: the search's probabilities of the N codes of the outcome of the action taken; zeros where
      unknown. None without chance nodes in the search.
  """

  index: int
  seat: int | None
  length: int
  frames: Shaped[AnyArray, "T H W C"]
  pictures: UInt8[AnyArray, "T h w 3"] | None
  to_play: Int32[AnyArray, "T"]
  actions: Num[AnyArray, "T *D"]
  rewards: Float32[AnyArray, "T"]
  totals: Float64[AnyArray, "T"]
  root_values: Float32[AnyArray, "T"]
  action_probs: Float32[AnyArray, "T E"]
  choices: Int32[AnyArray, "T E"] | None = None
  chance_probs: Float32[AnyArray, "T N"] | None = None

  def choices_at(self, t: int) -> Int[np.ndarray, "E"]:
    """Returns the actions of the columns of frame t's row of `action_probs`."""
    return np.arange(self.action_probs.shape[1]) if self.choices is None else np.asarray(self.choices[t])

  @property
  def num_frames(self) -> int:
    """T, including the last frame."""
    return len(self.frames)

  @property
  def num_decisions(self) -> int:
    """Number of actions between the recorded frames, T − 1."""
    return len(self.frames) - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectedEpisode(PlayedEpisode):
  """An episode from its first frame on, with searches and predictions. The last frame may have been searched.

  Attributes:
    end: "terminal"; "truncated" (by a step limit of environment or evaluation); "cut" (stopped early).
    seat: the agent's player; 0 with one player.
    discount: γ.
    signed_discount: the factor by which the search multiplies a child's value; −γ with two players.
    num_simulations: the number of simulations of each search.
    legal_actions_mask: which of the choices are legal.
    seat_sign: +1 where the seat is to move, else −1; a value times this sign is the seat's value.
    is_agents: true where the agent chose the action, false where its opponent did.
    prior_values: env units: the network's.
    returns: env units: the discounted return from this frame on. If the last frame is not terminal, the
      return is bootstrapped from its search value.
    prior_probs: the network's probability of each choice.
    q_values: Q-values of the search; the mixed value for actions without a visit.
    network_q_values: the Q-value of each choice from one step of the model (AlphaZero: of the rules) and the
      network's value, without search; with chance nodes, from the prediction at the afterstate.
    imagined_rewards: entry k is the model's reward for the (k+1)-th action taken from t on. With chance
      nodes, each action has its most probable outcome.
    imagined_values: entry k is the model's value after k of these actions, for the player to move then. The
      actions after the episode's end are the dummy. The true value after a terminal frame is 0. K is 0 with
      AlphaZero.
    trees: one for each frame; None where there was no search.
  """

  end: Literal["terminal", "truncated", "cut"]
  seat: int
  discount: float
  signed_discount: float
  num_simulations: int
  legal_actions_mask: Bool[AnyArray, "T E"]
  seat_sign: Float32[AnyArray, "T"]
  is_agents: Bool[AnyArray, "T"]
  prior_values: Float32[AnyArray, "T"]
  returns: Float32[AnyArray, "T"]
  prior_probs: Float32[AnyArray, "T E"]
  q_values: Float32[AnyArray, "T E"]
  network_q_values: Float32[AnyArray, "T E"]
  imagined_rewards: Float32[AnyArray, "T K"]
  imagined_values: Float32[AnyArray, "T K+1"]
  trees: tuple[SearchTree | None, ...]
