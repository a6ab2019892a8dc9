"""What is kept of an episode that is looked at closely: every frame, and what was thought there.

Arrays are NumPy at rest. Axes: T frames, K unroll, A agent actions, N nodes of a tree, H W C frame.
"""

import dataclasses
from typing import Any, Literal

from moozi.core.pytree import record

Array = Any


@record
class SearchTree:
  """One search's tree as plain arrays. Node 0 is the root; a parent comes before its children.

  Values are for the player to move at the node; a reward is that of the player who moved into it. What an
  edge was worth to the player who moved is reward + signed discount · value (`ops.players.search_discount`).

  Attributes:
    parent: [N] int32; -1 at the root.
    action: [N] int32, the agent's action that leads here from the parent; -1 at the root.
    depth: [N] int32; 0 at the root.
    visits: [N] int32.
    value: [N] float32, env units: the mean over the visits.
    raw_value: [N] float32, env units: the network's own, before the search.
    reward: [N] float32, env units: the model's, on entering; 0 at the root.
    prior: [N] float32: the network's probability of the action at the parent; 1 at the root.
  """

  parent: Array
  action: Array
  depth: Array
  visits: Array
  value: Array
  raw_value: Array
  reward: Array
  prior: Array

  @property
  def num_nodes(self) -> int:
    """N."""
    return len(self.parent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectedEpisode:
  """One evaluation episode from its first frame to its last, with everything that was thought in it.

  The last frame has no decision: its action is the dummy, and nothing was searched where it is terminal.
  Values, action values and returns are for the player to move; rewards for the player who moved.

  Attributes:
    index: which of the evaluation's episodes.
    end: "terminal"; "truncated" (a clock of the environment's or of the evaluation's); "cut" (left there).
    seat: the player whom the agent is; with one player 0.
    return_: undiscounted sum of rewards, of the agent's seat.
    discount: γ.
    signed_discount: what the search multiplies a child's value with: −γ with two players.
    num_simulations: of each search.
    frames: [T, H, W, C] of the spec's dtype.
    pictures: [T, h, w, 3] uint8, the environment's own; None where it has none.
    legal_actions_mask: [T, A] bool.
    to_play: [T] int32, the player to move.
    seat_sign: [T] float32: +1 where the seat is to move, else −1; times it, a value is the seat's.
    actions: [T] int32. is_agents: [T] bool, whether the agent chose it (else its opponent).
    rewards: [T] float32, env units, received on entering the frame.
    root_values: [T] float32, env units: the search's.
    prior_values: [T] float32, env units: the network's.
    returns: [T] float32, env units: the discounted return that followed; past an end that is not terminal,
      the last frame's search value stands for what was not seen.
    prior_probs: [T, A] float32. action_probs: [T, A] float32, the search policy.
    q_values: [T, A] float32: the search's; of actions without a visit the mixed value.
    network_q_values: [T, A] float32: the model's reward and value after each action, with no search.
    imagined_rewards: [T, K] float32: k is the model's reward of the (k+1)-th action really taken from t on.
    imagined_values: [T, K + 1] float32: k is the model's value after k of them, for the player to move then;
      past the end the actions are the dummy, and truth is 0 after a terminal frame.
    trees: of each frame; None where nothing was searched.
  """

  index: int
  end: Literal["terminal", "truncated", "cut"]
  seat: int
  return_: float
  discount: float
  signed_discount: float
  num_simulations: int
  frames: Array
  pictures: Array | None
  legal_actions_mask: Array
  to_play: Array
  seat_sign: Array
  actions: Array
  is_agents: Array
  rewards: Array
  root_values: Array
  prior_values: Array
  returns: Array
  prior_probs: Array
  action_probs: Array
  q_values: Array
  network_q_values: Array
  imagined_rewards: Array
  imagined_values: Array
  trees: tuple[SearchTree | None, ...]

  @property
  def num_frames(self) -> int:
    """T, the last frame included."""
    return len(self.frames)

  @property
  def num_decisions(self) -> int:
    """Actions taken, T − 1."""
    return len(self.frames) - 1
